"""Where the named data sets are published, and the hashes of their files."""

from collections.abc import Mapping

from fedref.datasets.download import Remote
from fedref.datasets.formats import cifar


def mnist_like(base: str, mirror: str, hashes: Mapping[str, str]) -> tuple[Remote, ...]:
    return tuple(Remote(name, (base + name, mirror + name), h) for name, h in hashes.items())


MNIST = mnist_like(
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    {
        "train-images-idx3-ubyte.gz": "sha256:"
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "sha256:"
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "sha256:"
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "sha256:"
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)
FASHION = mnist_like(
    "https://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    {
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
)
CIFAR = (
    Remote(
        cifar.ARCHIVE,
        ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
)
EMNIST = (
    Remote(
        "gzip.zip",
        ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
        "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    ),
)
