from ..machine import describe as describe
from ..machine import processor as processor
from ..machine import slug as slug
