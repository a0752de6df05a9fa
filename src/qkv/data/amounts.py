"""Dates, times, amounts and prices as they are written in English and in German.

All words and formats come from Unicode's CLDR through Babel; only the choice of values is ours.
"""

import random
from collections.abc import Callable
from datetime import date, time, timedelta

from babel.dates import (
    format_date,
    format_skeleton,
    format_time,
    format_timedelta,
    get_day_names,
    get_month_names,
)
from babel.numbers import format_currency, format_decimal, format_percent
from babel.units import format_unit

LANGUAGES = ("en_US", "de_DE")
CURRENCIES = ("USD", "EUR", "GBP", "CHF")

Both = tuple[str, str]  # in English, in German
Draw = Callable[[random.Random], Both]


def _both(write: Callable[[str], str]) -> Both:
    """The same value in both languages; CLDR's no-break spaces become plain ones."""
    english, german = (" ".join(write(language).split()) for language in LANGUAGES)
    return english, german


def _any_day(chance: random.Random) -> date:
    return date(1950, 1, 1) + timedelta(days=chance.randrange(30_000))


def _date(chance: random.Random) -> Both:
    """March 3, 2025 · 3. März 2025, or in figures."""
    day, style = _any_day(chance), chance.choice(("long", "long", "medium", "short"))
    return _both(lambda language: format_date(day, style, language))


def _full_date(chance: random.Random) -> Both:
    """Monday, March 3, 2025 · Montag, 3. März 2025."""
    day = _any_day(chance)
    return _both(lambda language: format_date(day, "full", language))


def _day_of_year(chance: random.Random) -> Both:
    """March 3 · 3. März."""
    day = _any_day(chance)
    return _both(lambda language: format_skeleton("MMMMd", day, locale=language))


def _month_of_year(chance: random.Random) -> Both:
    """March 2025 · März 2025."""
    day = _any_day(chance)
    return _both(lambda language: format_skeleton("yMMMM", day, locale=language))


def _month(chance: random.Random) -> Both:
    number = chance.randint(1, 12)
    return _both(lambda language: get_month_names("wide", locale=language)[number])


def _weekday(chance: random.Random) -> Both:
    number = chance.randrange(7)
    return _both(lambda language: get_day_names("wide", locale=language)[number])


def _time(chance: random.Random) -> Both:
    """3:05 PM · 15:05."""
    moment = time(chance.randrange(24), chance.choice((0, 30, 5 * chance.randrange(12))))
    return _both(lambda language: format_time(moment, "short", locale=language))


def _away(direction: int) -> Draw:
    """3 days ago · vor 3 Tagen, or in 3 days · in 3 Tagen."""

    def draw(chance: random.Random) -> Both:
        unit = chance.choice(("minutes", "hours", "days", "weeks"))
        count = chance.randint(2, {"minutes": 59, "hours": 23, "days": 6, "weeks": 50}[unit])
        span = direction * timedelta(**{unit: count})
        return _both(
            lambda language: format_timedelta(
                span, threshold=1, add_direction=True, locale=language
            )
        )

    return draw


def _unit(most: int, *units: str) -> Draw:
    """2.5 kilometers · 2,5 Kilometer."""

    def draw(chance: random.Random) -> Both:
        unit, whole = chance.choice(units), chance.randint(1, most)
        amount = chance.choice((whole, whole, whole + chance.randint(1, 9) / 10))
        return _both(lambda language: format_unit(amount, unit, "long", locale=language))

    return draw


def _price(chance: random.Random) -> Both:
    """$12.50 · 12,50 $, or in words."""
    amount = chance.choice((chance.randint(2, 90), chance.randint(2, 9_000)))
    cents, currency = (
        chance.choice((0, 0.5, chance.randrange(100) / 100)),
        chance.choice(CURRENCIES),
    )
    style = "name" if chance.random() < 1 / 3 else "standard"

    def write(language: str) -> str:
        return format_currency(amount + cents, currency, locale=language, format_type=style)  # type: ignore[arg-type]

    return _both(write)


def _count(chance: random.Random) -> Both:
    """12,345 · 12.345."""
    number = chance.randint(2, 10 ** chance.randint(2, 6))
    return _both(lambda language: format_decimal(number, locale=language))


def _percent(chance: random.Random) -> Both:
    """45% · 45 %."""
    number = chance.randint(2, 99)
    return _both(lambda language: format_percent(number / 100, locale=language))


AMOUNTS: dict[str, Draw] = {
    "date": _date,
    "full_date": _full_date,
    "day": _day_of_year,
    "month_of_year": _month_of_year,
    "month": _month,
    "weekday": _weekday,
    "last_weekday": _weekday,
    "time": _time,
    "later": _time,
    "ago": _away(-1),
    "hence": _away(1),
    "distance": _unit(900, "length-kilometer", "length-meter"),
    "length": _unit(300, "length-meter", "length-centimeter"),
    "mass": _unit(40, "mass-kilogram", "mass-gram"),
    "volume": _unit(40, "volume-liter", "volume-milliliter"),
    "duration": _unit(59, "duration-minute", "duration-hour", "duration-day", "duration-week"),
    "temperature": _unit(38, "temperature-celsius"),
    "speed": _unit(200, "speed-kilometer-per-hour"),
    "area": _unit(400, "area-square-meter"),
    "storage": _unit(900, "digital-megabyte", "digital-gigabyte"),
    "price": _price,
    "count": _count,
    "percent": _percent,
}
