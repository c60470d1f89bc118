"""The measures of a stage, with an explanation of each for the reader of a report."""

from collections.abc import Callable
from dataclasses import dataclass

from fupareto.report.markup import decimal, percent, score


@dataclass(frozen=True)
class Measure:
    """One number that every stage reports."""

    key: str
    title: str
    wish: str
    meaning: str
    form: Callable[[float], str] = percent


MEASURES = (
    Measure(
        "asr",
        "Attack success rate (ASR)",
        "lower is better",
        "Forget clients put a pattern, a backdoor, into their data. ASR is how often the pattern "
        "still fools the model: high means that they are remembered, near zero that they are forgotten.",
    ),
    Measure("asr_max", "Worst client’s ASR", "lower is better", "The ASR of the client remembered best."),
    Measure(
        "r_acc",
        "Retained accuracy (R-Acc)",
        "higher is better",
        "How often the model is right on the test data of the retained clients: their mean, and after ± "
        "their standard deviation.",
    ),
    Measure(
        "r_acc_min",
        "Worst retained client",
        "higher is better",
        "The accuracy of the retained client with the lowest one, which a good mean may hide.",
    ),
    Measure(
        "forget_acc",
        "Forget accuracy",
        "context",
        "Accuracy on the data to be forgotten, as their owners have them. It need not fall to zero: a model that "
        "never saw them may still be right on many of them.",
    ),
    Measure(
        "mia_auc",
        "Membership attack (AUC)",
        "near 0.5 is better",
        "How well an attacker can tell that the forgotten data were used for training; 0.5 is a coin toss. The "
        "attack is trained, so below 0.5 is chance, not a leak.",
        score,
    ),
    Measure(
        "distance",
        "Distance from the initial model",
        "context",
        "How far the parameters have moved (Euclidean norm). Neither good nor bad in itself, but a model "
        "that moves back towards the initial one during recovery may be remembering again.",
        decimal,
    ),
)
BY_KEY = {measure.key: measure for measure in MEASURES}
STAGE_MEANING = {
    "initial": "as trained by all clients",
    "unlearned": "after unlearning",
    "recovered": "after recovery",
}
