"""Pegasus, whose position tables are waves as Marian's are."""

from tests.checkpoints.cases_marian import SIZES, MarianPeer
from tests.checkpoints.peers import Peer

PEGASUS = ("PegasusForConditionalGeneration", "PegasusConfig")

CASES: dict[str, Peer] = {
    "pegasus": MarianPeer(*PEGASUS, SIZES),
    "pegasus, squared ReLU": MarianPeer(
        *PEGASUS, SIZES | {"activation_function": "relu2", "scale_embedding": False}
    ),
}
