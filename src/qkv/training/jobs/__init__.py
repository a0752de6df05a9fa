"""The five jobs, one file each."""

from typing import Any

from qkv.errors import TrainingError, UsageError, unknown
from qkv.model import Model
from qkv.training.jobs.base import Job
from qkv.training.jobs.classify import Classifying
from qkv.training.jobs.embed import Embedding
from qkv.training.jobs.language import Language
from qkv.training.jobs.masked import Masked
from qkv.training.jobs.translate import Translating

JOBS: dict[str, Job[Any]] = {
    job.name: job for job in (Language(), Masked(), Classifying(), Translating(), Embedding())
}


def find_job(name: str) -> Job[Any]:
    if name not in JOBS:
        raise UsageError(unknown("job", name, JOBS))
    return JOBS[name]


def job_of(model: Model) -> Job[Any]:
    """The job this model does, told from its output."""
    for job in JOBS.values():
        if job.answers(model):
            return job
    raise TrainingError("this model does none of the five jobs")
