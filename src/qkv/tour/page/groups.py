"""Groups of similar texts: a map and a table."""

from qkv.engine.cluster.picture import picture
from qkv.engine.cluster.places import places, sampled
from qkv.report.markup import escaped, paragraph, table
from qkv.tour.looks import Groups


def groups(found: Groups) -> list[str]:
    """Where each text stands among the others, and what each group is."""
    clustering = found.clustering
    shown = sampled(clustering, 0)
    map_ = picture(clustering, shown, places(found.vectors[shown], 0))
    caption = (
        f"{len(clustering.texts):,} held-out reviews, alike ones near each other. Numbers are "
        "those of the groups below. Point at a sign to read its text."
    )
    rows = [
        (
            f"{each.id}",
            each.name,
            "\n".join(clustering.texts[i] for i in found.members(each.id)),
            f"{found.share(each.id)[1]:.0%} {found.share(each.id)[0]}",
            f"{each.size:,}",
        )
        for each in clustering.clusters
    ]
    columns = ("group", "named by its words", "near its centre", "labelled", "texts")
    return [
        paragraph(
            "Groups of the vectors that the encoder reads its label off. It learnt to part labels, "
            "so its groups part them too; the grouping itself sees no label."
        ),
        f'<figure>\n{map_}\n<figcaption id="map">{escaped(caption)}</figcaption>\n</figure>',
        table("Groups, the largest first", columns, rows, texts=4),
    ]
