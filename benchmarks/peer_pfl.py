"""FedAvg as a user of pfl-research writes it: a PyTorchModel, users' datasets, FederatedAveraging, SimulatedBackend.

Run by torchrun with one worker per core and one thread each, which is how pfl-research uses several cores; or as one
process with all cores as threads. Its first round also evaluates, as its API has it, and is not timed.
"""

import os
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from cases import BATCH, Case, client, eager, ours
from fupareto import parameters
from peers import Turns, flat, told


class Model(nn.Module):
    """The eager model with the two methods that pfl-research asks for."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.module = eager(case.model)
        parameters.write(self.module, parameters.read(ours(case.model)))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return F.cross_entropy(self.module(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {"loss": Weighted(0.0, len(y))}


class BetweenRounds(TrainingProcessCallback):  # type: ignore[misc, unused-ignore]
    """The first worker waits for its turn; the others wait for it where they add their updates up."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.first = os.environ.get("RANK", "0") == "0"

    def on_train_begin(self, *, model: Any) -> Metrics:
        if self.first:
            self.turns.begin()
        return Metrics()

    def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> tuple[bool, Metrics]:
        if self.first:
            self.turns.between(flat(model.pytorch_model.state_dict()))
        return False, Metrics()


def main() -> None:
    case, turns = told()
    torch.set_num_threads(1 if "RANK" in os.environ else os.cpu_count() or 1)
    module = Model(case)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users = [str(i) for i in range(case.clients)]
    held = {i: PyTorchTensorDataset(client(case.shape, case.samples, int(i)), user_id=i) for i in users}
    data = FederatedDataset(held.__getitem__, get_user_sampler("minimize_reuse", users))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=turns.rounds,
            evaluation_frequency=turns.rounds,
            train_cohort_size=case.clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=case.lr, local_batch_size=BATCH),
        callbacks=[BetweenRounds(turns)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
