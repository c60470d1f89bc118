"""What do the numbers mean? Every measure of a stage, explained to someone who sees it for the first time."""

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
        "Each client to be forgotten hid a pattern, a backdoor, in its data. ASR is how often the pattern "
        "still fools the model: high means the client is remembered, near zero means it is forgotten.",
    ),
    Measure("asr_max", "Worst client’s ASR", "lower is better", "The ASR of the client remembered best."),
    Measure(
        "r_acc",
        "Retained accuracy (R-Acc)",
        "higher is better",
        "How often the model is right on the test data of the clients that stay: their mean, and after ± "
        "how much they differ (standard deviation).",
    ),
    Measure(
        "r_acc_min",
        "Worst retained client",
        "higher is better",
        "The accuracy of the client that stays and is served worst. One client must not pay for a good mean.",
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
        "How well an attacker can tell that the forgotten data were used for training; 0.5 is a coin toss, and "
        "below 0.5 is a leak too.",
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
    "initial": "as trained by everyone",
    "unlearned": "after forgetting",
    "recovered": "after repairing the rest",
}
