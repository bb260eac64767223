"""Main: the `weft` command; parses, calls, prints, and gives the exit code."""

from __future__ import annotations

import argparse
import functools
import importlib
import keyword
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from ...specs.findings import InputError, SpecError
from .options.cost import add_cost_options
from .options.decode import add_generate, add_output_options, add_serve
from .options.export import add_export_commands
from .options.search import add_compile_option, add_search_options
from .options.trees import add_evaluate_options, add_tree_commands

TOUR = """Compose sequence models from typed blocks.

A model is a JSON spec that wires blocks together.  Start here:

  weft check transformer-base               is it a model? prints every mistake
  weft show  transformer-base               its nodes, types and parameters
  weft draw  transformer-base -o base.svg   what does it look like?
  weft train multi30k-en-de --set data.root=DIR
  weft translate outputs/multi30k-en-de/averaged < in.en > out.de
"""
EXIT_CODES = (
    "exit codes: 0 done, 1 an input is wrong, 2 the command is wrong, 130 or 143 stopped and saved"
)

SPEC = "a spec file, or the name of a shipped spec"
RUN = "a run file, or the name of a shipped run"
CHECKPOINT = "a checkpoint folder, such as outputs/demo/averaged"


@functools.cache
def parser() -> argparse.ArgumentParser:
    """Return the parser of every command, without loading any of them."""
    top = argparse.ArgumentParser(
        prog="weft",
        description=TOUR,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"weft {version('weft')}")
    commands = top.add_subparsers(dest="command", metavar="command", required=True)

    def add(name: str, module: str, short: str, example: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=short,
            description=short[:1].upper() + short[1:] + ".",
            epilog=f"example:\n  {example}\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(module=module, function=f"{name}_" if keyword.iskeyword(name) else name)
        return made

    _add_spec_commands(add)
    _add_language_commands(add)
    _add_run_commands(add)
    add_export_commands(add)
    add_tree_commands(add)
    return top


Add = Callable[[str, str, str, str], argparse.ArgumentParser]


def _settable(command: argparse.ArgumentParser, example: str) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help=f"change a value from outside, as often as needed, such as {example}",
    )


def _add_spec_commands(add: Add) -> None:
    spec = "spec.inspect"
    check = add(
        "check", spec, "report every mistake in a spec", "weft check my.json --set layers=4"
    )
    show = add(
        "show", spec, "list a spec's nodes, types and parameters", "weft show transformer-tiny"
    )
    expand = add(
        "expand", spec, "print a spec's full form", "weft expand transformer-base > full.json"
    )
    draw = add("draw", spec, "draw a spec", "weft draw transformer-base -o base.svg --form typed")
    for command in (check, show, expand, draw):
        command.add_argument("spec", help=SPEC)
        _settable(command, "layers=4")
    for command in (check, show, expand):
        command.add_argument(
            "--json", action="store_true", help="print JSON, for editors and tools"
        )
    expand.add_argument(
        "--provenance", action="store_true", help="say of each value where it came from"
    )
    draw.add_argument("-o", "--out", required=True, help="file to write: .svg .png .pdf or .dot")
    draw.add_argument(
        "--form",
        choices=("folded", "typed", "expanded"),
        default="folded",
        help="folded: repeats as one box; typed: with the type of every wire; "
        "expanded: every layer (default: folded)",
    )
    cost = add(
        "cost",
        "spec.cost",
        "say what a spec costs by node: parameters, FLOPs, memory, steps in a row",
        "weft cost transformer-base --axes S=40,T=40\n"
        "  weft cost wmt14-en-de-base --project --devices 8 --peak 700",
    )
    cost.add_argument("spec", nargs="?", help=SPEC)
    _settable(cost, "layers=4")
    add_cost_options(cost)
    blocks = add("blocks", spec, "list the blocks a spec may name", "weft blocks attention@1")
    blocks.add_argument("name", nargs="?", help="one block, to see its ports, params and source")
    blocks.add_argument("--json", action="store_true", help="print JSON")


def _add_language_commands(add: Add) -> None:
    diff = add(
        "diff",
        "spec.diff",
        "say what differs between two specs",
        "weft diff transformer-base mine.json -o diff.svg",
    )
    diff.add_argument("spec", help=SPEC)
    diff.add_argument("other", help="the spec to compare it with")
    diff.add_argument("-o", "--out", help="also draw it: .svg .png .pdf or .dot")
    diff.add_argument("--json", action="store_true", help="print JSON")
    swap = add(
        "swap",
        "spec.swap",
        "write a variant in which some blocks are others, and say which weights survive",
        "weft swap transformer-base '**/f[use=attention@1]' --use grouped_query_attention@1 "
        "--set kv_heads=2 -o gqa.json",
    )
    swap.add_argument("spec", help=SPEC)
    swap.add_argument("select", help="which nodes: a path with * and **, and [key=value]")
    swap.add_argument("--use", required=True, help="the block that takes their place")
    swap.add_argument("--expect", type=int, help="how many there must be (default: any, but one)")
    swap.add_argument("--name", help="name of the variant (default: that of the file)")
    swap.add_argument("-o", "--out", required=True, help="spec file to write")
    swap.add_argument("--json", action="store_true", help="print JSON")
    _settable(swap, "kv_heads=2 (params of the new block)")
    schema = add(
        "schema",
        "spec.language",
        "print the JSON Schema of specs or runs, for editors",
        "weft schema -o weft.schema.json\n  weft schema --run -o run.schema.json",
    )
    schema.add_argument("--run", action="store_true", help="of run files instead of specs")
    schema.add_argument("-o", "--out", help="file to write (default: print it)")
    migrate = add(
        "migrate",
        "spec.language",
        "write a spec, run or checkpoint of an older format in today's",
        "weft migrate old.json -o new.json",
    )
    migrate.add_argument("spec", help="a spec file, a run file, or a checkpoint folder")
    migrate.add_argument(
        "-o", "--out", help="file to write, or the new folder of a checkpoint (default: print it)"
    )


def _add_run_commands(add: Add) -> None:
    run = "train.run"
    prepare = add(
        "prepare", run, "make a run's tokenizer and binary corpus", "weft prepare multi30k-en-de"
    )
    train = add("train", run, "train a run", "weft train multi30k-en-de --set data.root=DIR")
    for command in (prepare, train):
        command.add_argument("run", help=RUN)
        command.add_argument("--out", help="folder of the run (default: outputs/NAME)")
        _settable(command, "data.root=corpora/multi30k")
    prepare.add_argument(
        "--workers",
        type=int,
        help="processes that tokenize (default: one for each core); what comes out is the same",
    )
    train.add_argument(
        "--resume", action="store_true", help="go on from the newest checkpoint in the folder"
    )
    train.add_argument(
        "--profile",
        type=int,
        nargs="?",
        const=5,
        metavar="N",
        help="instead of training, say where the time and memory of N updates go, by node of the "
        "spec (default: %(const)s); writes a flame graph into the run's folder",
    )
    use = "train.evaluate"
    translate = add(
        "translate",
        "decode.translate",
        "translate lines from stdin to stdout",
        "weft translate outputs/demo/averaged --beam 5 < in.txt > out.txt",
    )
    evaluate = add(
        "evaluate",
        use,
        "print BLEU, chrF and perplexity of a checkpoint, or of a parser EVALB's report",
        "weft evaluate outputs/multi30k-en-de/averaged --test test_2016_flickr --beam 5",
    )
    score = add(
        "score",
        "decode.translate",
        "print how probable given translations are",
        "weft score outputs/demo/averaged --source in.txt --target out.txt",
    )
    attend = add(
        "attend",
        "decode.translate",
        "show what each head reads of a sentence and its translation",
        "weft attend outputs/demo/averaged 'three hundred and seven' -o heads.html",
    )
    for command in (translate, evaluate, score, attend):
        command.add_argument("checkpoint", help=CHECKPOINT)
        add_search_options(command)
    for command in (translate, evaluate):
        add_compile_option(command)
    translate.add_argument(
        "--buffer",
        type=int,
        default=1000,
        help="lines to read ahead; 1 answers each at once (default: %(default)s)",
    )
    translate.add_argument(
        "--prefix", metavar="FILE", help="text that each translation begins with, line by line"
    )
    translate.add_argument(
        "--include",
        metavar="FILE",
        help="phrases that each translation holds, line by line, tabs between them",
    )
    translate.add_argument(
        "--interactive", action="store_true", help="prompt, and answer each line at once"
    )
    add_output_options(translate)
    attend.add_argument("text", help="a sentence to translate")
    attend.add_argument("--target", help="what the decoder reads (default: the translation)")
    attend.add_argument(
        "--only", metavar="WHAT", help="one kind, such as 'target reads source' (default: all)"
    )
    attend.add_argument(
        "-o", "--out", required=True, help="file to write: .html to explore, or .png"
    )
    score.add_argument("--source", required=True, help="source text, plain or gzip")
    score.add_argument("--target", required=True, help="its translations, line by line")
    score.add_argument(
        "--json", action="store_true", help="print JSON lines, with every token's log probability"
    )
    add_evaluate_options(evaluate)
    average = add(
        "average",
        use,
        "write the plain mean of several checkpoints",
        "weft average outputs/demo/checkpoints/* -o outputs/demo/mean",
    )
    average.add_argument("checkpoint", nargs="+", help="checkpoint folders of one run")
    average.add_argument("-o", "--out", required=True, help="checkpoint folder to write")

    _add_import(add)
    add_generate(add)
    add_serve(add)


def _add_import(add: Add) -> None:
    made = add(
        "import",
        "checkpoint.import_hf",
        "write a checkpoint from a folder of another library, without running any of it",
        "weft import hf ../bert-base-uncased --as bert --out outputs/bert",
    )
    made.add_argument("library", choices=("hf",), help="hf: a folder that save_pretrained wrote")
    made.add_argument("folder", help="holds config.json and model.safetensors")
    made.add_argument(
        "--as",
        dest="table",
        metavar="TABLE",
        help="a shipped table, such as bert, or a table file (default: by the model's type)",
    )
    made.add_argument("--out", help="checkpoint folder to write (default: outputs/NAME)")
    prune = add(
        "prune",
        "checkpoint.prune",
        "write a checkpoint without some of its attention heads",
        "weft prune outputs/demo/averaged --heads encoder.0.self_attention.f:0,3 "
        "-o outputs/demo/pruned",
    )
    prune.add_argument("checkpoint", help=CHECKPOINT)
    prune.add_argument(
        "--heads",
        action="append",
        required=True,
        metavar="PATH:0,3",
        help="an attention and the heads to take out, counted from 0, as often as needed",
    )
    prune.add_argument("-o", "--out", required=True, help="checkpoint folder to write")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parser().parse_args(arguments)
    if getattr(options, "profile", None) is not None or getattr(options, "measure", False):
        # Torch's profiler tells when it starts and stops, in lines that are nobody's.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    module = importlib.import_module(f".{options.module}", __package__)
    try:
        return int(getattr(module, options.function)(options) or 0)
    except SpecError as error:
        count = len(error.findings)
        print(f"{error}\n\n{count} mistake{'s' * (count != 1)} found", file=sys.stderr)
        return 1
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has gone: nothing more to say, and nothing for Python to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        problem = f"cannot read or write it: {error.strerror}"
        told = InputError(problem, place=str(error.filename), help="choose another place")
        print(f"error: {told}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
