#!/usr/bin/env bash
# Every claim about a GPU, measured on one H100 or H200 with 16 cores in at most eight minutes: equal results first, then speed.
#
#   scripts/gpu_checks.sh MODEL.npz [WORK]      MODEL.npz: python scripts/pack_model.py pack demo MODEL.npz
#
#   PYTHON   the interpreter (python3); it needs torch, transformers and sentence-transformers, and adiabat from src/
#   SITE     a folder of further packages, such as unpacked wheels of those that the first lines name as missing
#   OUT      where rows, log and table go (WORK/out), in four files; what is there stays if the run is cut
#   SECONDS_IN_ALL   time for all parts (480, without a GPU 3,600); a part that no longer fits is left out
#   ONLY     parts to run, such as "search tune process-embed"; the models are unpacked in any case
#
# Without a GPU it measures small cases, which says that all parts run. It ends with 1 if a part failed. Missed targets are no failure.
set -u
if [ $# -lt 1 ]; then sed -n '2,13p' "$0"; exit 2; fi
MODEL=$(realpath "$1")
WORK=${2:-$(mktemp -d)}
OUT=${OUT:-$WORK/out}
mkdir -p "$WORK/logs" "$OUT"
WORK=$(realpath "$WORK") OUT=$(realpath "$OUT")
LOGS=$WORK/logs
SITE=${SITE:+$(realpath "$SITE")}
cd "$(dirname "$0")/.." || exit 2
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD/src${SITE:+:$SITE}" HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 GPU_ROWS="$OUT/rows.jsonl"
export XDG_CACHE_HOME="$WORK/cache"
: > "$GPU_ROWS"
: > "$OUT/log.txt"
SECONDS=0
FAILED=()

run() { # run NAME LIMIT COMMAND...: one part, with a log and a limit of seconds
    local name=$1 limit=$2 start=$SECONDS code
    shift 2
    if [[ -n ${ONLY:-} && " unpack unpack-large $ONLY " != *" $name "* ]]; then return 125; fi
    ((limit *= SMALL ? 5 : 1))
    if ((SECONDS + limit / 3 > LEFT)); then
        echo "== $name: left out, $SECONDS of $LEFT seconds are over"
        FAILED+=("$name")
        return 125
    fi
    timeout -k 5 $((limit < LEFT - SECONDS ? limit : LEFT - SECONDS)) "$@" > "$LOGS/$name.log" 2>&1
    code=$?
    echo "== $name: exit code $code after $((SECONDS - start)) s" | tee -a "$OUT/log.txt"
    tail -n 200 "$LOGS/$name.log" >> "$OUT/log.txt"
    if ((code)); then
        FAILED+=("$name")
        tail -n 3 "$LOGS/$name.log" | cut -c1-300
    fi
    return $code
}

verb() { # verb KEY LIMIT ARGUMENTS...: a command of adiabat as a process, timed
    local key=$1 limit=$2 start=$EPOCHREALTIME code
    shift 2
    run "process-$key" "$limit" "$PYTHON" -m adiabat "$@"
    code=$?
    ((code == 125)) || "$PYTHON" benchmarks/gpu_rows.py seconds "process $key" "$(awk -v a="$EPOCHREALTIME" -v b="$start" 'BEGIN { print a - b }')" $code
}

"$PYTHON" benchmarks/gpu_rows.py device || exit 2
eval "$("$PYTHON" - <<'P'
from adiabat.datasets import bundled
print(f"SMALL={int(not __import__('torch').cuda.is_available())}")
for name in ("CORPUS", "TRAIN", "VALIDATION", "TEST"):
    print(f"{name}={getattr(bundled, f'DEMO_{name}')}")
print(f"RETAIN={bundled.DEMO_RETAIN['arxiv-math'][1]}")
P
)"
MINILM=$WORK/minilm LARGE=$WORK/large TUNED=$WORK/minilm
LARGE_SHAPE=(1024 24 16 4096) STEPS=60 EPOCHS=5
LEFT=${SECONDS_IN_ALL:-$((SMALL ? 3600 : 480))}
if ((SMALL)); then # commands encode all of the demo: with a tiny model
    LARGE_SHAPE=(64 1 2 128) STEPS=2 EPOCHS=1 TUNED=$LARGE
fi
run unpack 60 "$PYTHON" scripts/pack_model.py unpack "$MODEL" "$MINILM" || exit 2
run unpack-large 60 "$PYTHON" scripts/pack_model.py unpack "$MODEL" "$LARGE" --shape "${LARGE_SHAPE[@]}"

# Equal results.
GOLDEN=(tune tune-rehearsed train train-frozen train-stored train-cached)
if ((SMALL)); then GOLDEN=(tune); fi
run golden 110 "$PYTHON" scripts/golden.py check tests/golden.json --only "${GOLDEN[@]}"
CODE=$?
if ((CODE < 2)); then # 1 says that numbers differ, which is a row
    "$PYTHON" benchmarks/gpu_rows.py golden "$LOGS/golden.log" $CODE
fi
run search 70 "$PYTHON" benchmarks/gpu_search.py && cat "$LOGS/search.log"

# Speed of the loops.
run tune 90 "$PYTHON" benchmarks/gpu_tune.py --model "$MINILM" --rows
run encode 90 "$PYTHON" benchmarks/gpu_encode.py "$MINILM" --profile
run encode-large 80 "$PYTHON" benchmarks/gpu_encode.py "$LARGE" --name large --documents 4096
run train 60 "$PYTHON" benchmarks/gpu_train.py --model "$MINILM" --steps 5 --row "train minilm"
run train-large 60 "$PYTHON" benchmarks/gpu_train.py --model "$LARGE" --batch 256 --steps 3 --memory keep=0 --row "train large"
run train-large-kept 60 "$PYTHON" benchmarks/gpu_train.py --model "$LARGE" --batch 256 --steps 3 --row "train large, kept"

# Commands as processes, in the order of the quickstart.
verb embed 60 embed "$TUNED" "$CORPUS" --out "$WORK/store"
verb tune 90 tune "$TUNED" "$WORK/store" "$TRAIN" --out "$WORK/job" --set "data.validation=$VALIDATION" \
    --set tune.negatives.kind=hardest --set tune.learning_rate=2e-6 --set tune.batches_per_epoch=$STEPS --set tune.max_epochs=$EPOCHS
verb evaluate 60 evaluate "$WORK/job" "$WORK/store" "$TEST" --baseline "$TUNED" --retain "$WORK/store" "$RETAIN" --out "$WORK/evaluation"
verb advise 80 advise "$TUNED" "$WORK/store" "$TRAIN" --out "$WORK/advice"

# What takes long and has no figure from before, or needs a minute by its nature.
run compiled 60 "$PYTHON" benchmarks/gpu_encode.py "$MINILM" --compiled
run compiled-large 60 "$PYTHON" benchmarks/gpu_encode.py "$LARGE" --name large --documents 2048 --compiled
if ((!SMALL)); then
    verb budget 100 tune "$MINILM" "$WORK/store" "$TRAIN" --out "$WORK/job2" --set "data.validation=$VALIDATION" --budget-time 1min
fi

echo
"$PYTHON" benchmarks/gpu_rows.py table | tee "$OUT/table.txt"
"$PYTHON" benchmarks/gpu_rows.py table --markdown > "$OUT/table.md"
echo "$SECONDS s; rows, log and tables are in $OUT"
if ((${#FAILED[@]})); then
    echo "failed: ${FAILED[*]}"
    exit 1
fi
