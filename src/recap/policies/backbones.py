"""The one place where a config's backbone becomes code."""

from __future__ import annotations

from recap.policies.config import NetworkConfig, Pi0NetworkConfig, Pi05NetworkConfig, PolicyConfig
from recap.policies.model import SlotModel
from recap.policies.vla import Pi05ActionModel, VisionLanguageActionModel
from recap.policies.wam import WorldActionModel

MODELS: dict[str, type[WorldActionModel] | type[VisionLanguageActionModel]] = {
    NetworkConfig.backbone: WorldActionModel,
    Pi0NetworkConfig.backbone: VisionLanguageActionModel,
    Pi05NetworkConfig.backbone: Pi05ActionModel,
}


def model_class(config: PolicyConfig) -> type[WorldActionModel] | type[VisionLanguageActionModel]:
    """Of the config's backbone."""
    return MODELS[config.network.backbone]


def build_model(config: PolicyConfig) -> SlotModel:
    """With fresh weights."""
    return model_class(config)(config)
