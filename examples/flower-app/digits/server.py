"""The server: trains or forgets, as the run config says."""

from digits.client import model
from fupareto.flower import server_app

app = server_app(model)
