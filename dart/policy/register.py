"""Registers the small policy with transformers' Auto classes; importing this module is enough."""

from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor

from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyForImageTextToText
from dart.policy.processing import GuiPolicyImageProcessor, GuiPolicyProcessor

AutoConfig.register(GuiPolicyConfig.model_type, GuiPolicyConfig, exist_ok=True)
AutoModelForImageTextToText.register(GuiPolicyConfig, GuiPolicyForImageTextToText, exist_ok=True)
AutoImageProcessor.register(
    GuiPolicyConfig,
    image_processor_classes={"pil": GuiPolicyImageProcessor, "torchvision": GuiPolicyImageProcessor},
    exist_ok=True,
)
AutoProcessor.register(GuiPolicyConfig, GuiPolicyProcessor, exist_ok=True)
