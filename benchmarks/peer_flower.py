"""FedAvg as a Flower user writes it: a ClientApp with a torch model, a ServerApp with the FedAvg strategy, on Ray.

The settings are meant to be kind to it: one CPU per client, which makes one actor per core with one thread each (Ray
sets OMP_NUM_THREADS), and Flower's in-memory grid, which looks for replies every tenth of a second, not every three as
the grid over HTTP does. Data stay in the actor's memory.
"""

import os

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader, TensorDataset

from cases import BATCH, client, eager, ours
from fupareto import parameters
from peers import flat, told

app = ClientApp()


@app.train()  # type: ignore[untyped-decorator, unused-ignore]
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    assert isinstance(config, ConfigRecord)
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    model = eager(str(config["model"]))
    model.load_state_dict(arrays.to_torch_state_dict())
    model.train()
    shape = tuple(int(n) for n in str(config["shape"]).split())
    x, y = client(shape, int(str(config["samples"])), int(context.node_config["partition-id"]))
    optimiser = torch.optim.SGD(model.parameters(), lr=float(str(config["lr"])))
    for batch_x, batch_y in DataLoader(TensorDataset(x, y), batch_size=BATCH):
        optimiser.zero_grad()
        F.cross_entropy(model(batch_x), batch_y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})})
    return Message(content=content, reply_to=message)


def main() -> None:
    case, turns = told()
    start = eager(case.model)
    parameters.write(start, parameters.read(ours(case.model)))
    server = ServerApp()

    @server.main()  # type: ignore[untyped-decorator, unused-ignore]
    def serve(grid: Grid, context: Context) -> None:
        def between(number: int, arrays: ArrayRecord) -> None:
            turns.between(flat(arrays.to_torch_state_dict())) if number else turns.begin()

        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=case.clients)
        shape = " ".join(map(str, case.shape))
        config = ConfigRecord({"model": case.model, "shape": shape, "samples": case.samples, "lr": case.lr})
        strategy.start(grid, ArrayRecord(start.state_dict()), turns.rounds, train_config=config, evaluate_fn=between)

    cores = os.cpu_count() or 1
    run_simulation(
        server,
        app,
        num_supernodes=case.clients,
        backend_config={
            "init_args": {"num_cpus": cores, "include_dashboard": False, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main()
