"""The server app: trains or unlearns, depending on the run config."""

from digits.client import model
from fupareto.flower import server_app

app = server_app(model)
