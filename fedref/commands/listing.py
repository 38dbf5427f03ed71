"""What there is to choose from: algorithms, models, data and split rules, a line each."""

from collections.abc import Iterator, Mapping

from fedref.datasets import RULES, SOURCES
from fedref.experiments.names import offered

ALGORITHMS = {
    "fedavg": "local SGD; the server averages",
    "fedavg-update": "FedAvg, with gradient steps of each client before it is tested",
    "fedavg-meta": "FedAvg, fine-tuned on the client's support set before it is tested",
    "fedprox": "local SGD with a proximal term; partial work of stragglers counts",
    "per-fedavg": "steps along the meta-gradient, with exact Hessian-vector products",
    "per-fedavg-fo": "Per-FedAvg of first order: without the Hessian",
    "per-fedavg-hf": "Per-FedAvg, Hessian free: a difference of gradients in its place",
    "fedmeta-maml": "sends the meta-gradient of an episode (MAML)",
    "fedmeta-fomaml": "the same of first order (FOMAML)",
    "fedmeta-sgd": "MAML that learns a step size for every parameter (Meta-SGD)",
    "fedmaml": "adapts in several steps; the server sums meta-gradients",
    "fedcurv": "SGD, drawn to the others' last solutions by their Fisher information",
    "apfl": "a shared model with a mask, and a part of each client's own",
    "centralised": "SGD on the pooled data: the IID baseline",
}

MODELS = {
    "logistic": "multinomial logistic regression",
    "binary-logistic": "logistic regression of two classes",
    "svm": "linear SVM, hinge or squared hinge",
    "mlp": "multi-layer perceptron, ELU, ReLU or tanh",
    "cnn": "convolutional network for images, max or mean pooling",
    "lstm": "embedding, LSTM layers and a dense layer, for text",
}


def listing() -> str:
    """All of it, what installed packages offer included; data and rules of your own come besides."""
    data = {name: source.help for name, source in SOURCES.items()}
    rules = {name: rule.help for name, rule in RULES.items()}
    parts = {
        "algorithms": (ALGORITHMS, "algorithms"),
        "models (--model)": (MODELS, "models"),
        "data (--data), or a file of your own": (data, "data"),
        "split rules (--split)": (rules, ""),
    }
    return "\n\n".join(
        "\n".join([title, *lines({**known, **others(group)})])
        for title, (known, group) in parts.items()
    )


def lines(known: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, known)) + 2
    yield from (f"  {name:<{width}}{said}" for name, said in known.items())


def others(group: str) -> dict[str, str]:
    """What installed packages offer."""
    return {name: f"from {point.value}" for name, point in offered(group).items()} if group else {}
