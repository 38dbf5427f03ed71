"""The algorithms: one file a paper. `ALGORITHMS` maps the command line's names to them."""

from fedref.algorithm import AnyAlgorithm
from fedref.algorithms.apfl import APFL
from fedref.algorithms.apfl_deng import APFLDeng
from fedref.algorithms.fedavg import Centralised, FedAvg, FedAvgMeta, FedAvgUpdate
from fedref.algorithms.fedcurv import FedCurv
from fedref.algorithms.feddyn import FedDyn
from fedref.algorithms.fedmaml import FedMAML
from fedref.algorithms.fedmeta import FOMAML, MAML, MetaSGD
from fedref.algorithms.fednova import FedNova
from fedref.algorithms.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from fedref.algorithms.fedprox import FedProx
from fedref.algorithms.per_fedavg import PerFedAvg, PerFedAvgFO, PerFedAvgHF
from fedref.algorithms.pfedme import PFedMe
from fedref.algorithms.scaffold import Scaffold

ALGORITHMS: dict[str, type[AnyAlgorithm]] = {
    "fedavg": FedAvg,
    "fedavg-update": FedAvgUpdate,
    "fedavg-meta": FedAvgMeta,
    "fedprox": FedProx,
    "per-fedavg": PerFedAvg,
    "per-fedavg-fo": PerFedAvgFO,
    "per-fedavg-hf": PerFedAvgHF,
    "fedmeta-maml": MAML,
    "fedmeta-fomaml": FOMAML,
    "fedmeta-sgd": MetaSGD,
    "fedmaml": FedMAML,
    "fedcurv": FedCurv,
    "apfl": APFL,
    "centralised": Centralised,
    "scaffold": Scaffold,
    "apfl-deng": APFLDeng,
    "feddyn": FedDyn,
    "fedadagrad": FedAdagrad,
    "fedyogi": FedYogi,
    "fedadam": FedAdam,
    "fedavgm": FedAvgM,
    "fednova": FedNova,
    "pfedme": PFedMe,
}

#: What each hyperparameter means; but for MEANINGS, one name means the same in every algorithm.
HYPERPARAMETERS: dict[str, str] = {
    "weighting": "how the server weights clients: samples (n_k) or uniform (FedMAML: a sum, always)",
    "drop": "drop stragglers (true) or take their partial work (false)",
    "lr": "η, the local learning rate",
    "alpha": "α, the inner or personal step size (Meta-SGD: its start); weight of FedDyn's regulariser, "
    "or of a client's own model in Deng's APFL (its start)",
    "beta": "β, the local (Per-FedAvg) or the server's (FedMeta, FedMAML, pFedMe) step size",
    "delta": "δ, half-width of Per-FedAvg HF's difference",
    "inner_steps": "inner (adaptation) steps: of meta-learning, FedAvg with update, FedAvg(Meta), pFedMe",
    "server": "the server's optimiser in FedMeta: sgd or adam",
    "episodes": "FedMeta's episodes of a client: one a round, or one for each mini-batch (epochs)",
    "evaluate": "the model of FedMAML that is tested: theta (adapted) or theta1",
    "mu": "μ, weight of FedProx's proximal term or of APFL's penalty",
    "adaptive_mu": "adapt FedProx's μ to the training loss",
    "until_gamma": "end FedProx's local solve at this inexactness γ (0: never)",
    "measure_gamma": "measure γ after every local solve of FedProx",
    "lam": "λ, weight of FedCurv's or pFedMe's penalty, or how much old importance counts in APFL (0 to 1)",
    "z": "the round, from 0, in which APFL's decomposition starts",
    "init": "start of APFL's own parameters: paper (w_k = w_S, jumps) or continuous",
    "importance": "APFL's importance: gradient-square (as printed), fisher, si or mas",
    "delta_mu": "δ_μ, APFL's threshold of the loss window's mean",
    "delta_sigma": "δ_σ, APFL's threshold of the loss window's standard deviation",
    "window": "rounds in APFL's loss window",
    "server_lr": "η, the server's step size in FedAdagrad, FedYogi, FedAdam, FedAvgM and (as η_g) SCAFFOLD",
    "control": "SCAFFOLD's c_i: difference (its option II) or gradient (option I)",
    "adaptive_alpha": "adapt α of Deng's APFL in every local step",
    "beta1": "β₁ of FedAdagrad, FedYogi and FedAdam",
    "beta2": "β₂ of FedYogi and FedAdam",
    "tau": "τ of FedAdagrad, FedYogi and FedAdam: larger is less adaptive",
    "momentum": "β, FedAvgM's momentum",
}
#: Where algorithms understand one name differently: name → algorithm → what it is there. Variants of an
#: algorithm share its meaning, as do all that are not named.
MEANINGS: dict[str, dict[str, str]] = {
    "alpha": {"feddyn": "the regulariser's weight", "apfl-deng": "the own model's weight"},
    "beta": {"per-fedavg": "the local step size", "pfedme": "how far the server follows the mean"},
    "lam": {"pfedme": "the envelope's weight", "apfl": "how much old importance counts"},
    "mu": {"apfl": "the weight of the importances' penalty"},
}

__all__ = ["ALGORITHMS", "HYPERPARAMETERS", "MEANINGS"]
