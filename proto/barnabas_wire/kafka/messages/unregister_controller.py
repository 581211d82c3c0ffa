"""UnregisterController (key 94): forget a controller that will not come back."""

from __future__ import annotations

from barnabas_wire.kafka.messages import ApiKey
from barnabas_wire.kafka.schema import Message, int16, int32, string
from barnabas_wire.lazy_dataclass import dataclass


@dataclass(slots=True)
class UnregisterControllerRequest(Message):
    """Drop one controller's registration."""

    API_KEY = ApiKey.UNREGISTER_CONTROLLER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    controller_id: int = int32()


@dataclass(slots=True)
class UnregisterControllerResponse(Message):
    """Whether the registration is gone."""

    API_KEY = ApiKey.UNREGISTER_CONTROLLER
    MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM = 0, 0, 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
