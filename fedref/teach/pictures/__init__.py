"""The pictures of the algorithms' pages, each computed by fedref's own functions with a fixed seed.

A picture is a function that returns a `Picture`; what it shows comes from a function of its own, so
that a test can look at the numbers.
"""

from collections.abc import Callable, Mapping

from fedref.teach.pictures import plane, runs
from fedref.teach.svg import Picture

#: File of an algorithm → name of a picture → what draws it, in the order of the page.
PICTURES: Mapping[str, Mapping[str, Callable[[], Picture]]] = {
    "fedavg": {"drift": plane.drift, "drift-plane": plane.drift_plane},
    "per_fedavg": {"hessian-correction": plane.correction, "hessian-free": plane.hessian_free},
    "fedprox": {"inexactness": runs.inexactness},
    "fedcurv": {"ellipses": plane.ellipses},
    "apfl": {"masks": runs.masks_per_client},
    "fedmeta": {"meta-sgd-alpha": runs.learnt_rates},
}
