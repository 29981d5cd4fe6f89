# Every command a person runs; `just` is never the only way.

# The main job: demo
demo:
    cargo run --release

# Compile and lint
check:
    cargo fmt --all --check && cargo clippy --workspace --all-targets -- -D warnings

# All tests
test:
    cargo test --workspace

# Look at changed snapshots (needs cargo-insta)
snap:
    cargo insta review

# Fuzz the parsers for a minute each (needs cargo-fuzz and nightly)
fuzz:
    cd stubs/wire/fuzz && for target in chunk http1 request sse; do cargo +nightly fuzz run $target -- -max_total_time=60; done

# Micro-benchmarks
bench:
    cargo bench --workspace

# What asking for usage costs
roofline:
    cargo run --release -- roofline --scenario usage

# Instructions per reply and request, and system calls, against their budgets (needs valgrind)
instructions:
    bash perf/instructions

# Real servers with our workers behind them (installs from PyPI into the cache folder)
real:
    cargo test --workspace --test real_executorch -- --ignored --nocapture

# Start ExecuTorch's own LLM server with our model worker, until interrupted
real-executorch:
    cargo build --release --bin stubline-worker
    cargo run --release --example real -- executorch worker=target/release/stubline-worker \
        model=fixtures/executorch/scripts.json tokenizer=fixtures/wire/sglang-0.5.23/stub-model

# Licences and sources of dependencies (needs cargo-deny)
deny:
    cargo deny check bans licenses sources

# What CI runs
ci:
    bash .ci/run
