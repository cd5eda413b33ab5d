# Short names for commands of CONTRIBUTING.md and docs/benchmarks.md. Nothing needs `just`: each recipe runs without it.
set positional-arguments

# Lists the recipes
default:
    @just --list

# Builds the release binary
build:
    cargo build --release --locked --package athanor-cli

# Builds the server and runs it on ./athanor-data; arguments go to `athanor serve`
run *ARGS:
    ./run "$@"

# Runs all tests; with arguments, `cargo test --workspace --locked` with these
test *ARGS:
    ./test "$@"

# Runs the tests of one crate, named by its folder: `just test-crate block`
test-crate CRATE:
    cargo test --locked --package athanor-{{CRATE}}

# Checks format and lints as CI does
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Serves the web UI with live reload against the server at ATHANOR_URL
ui-dev:
    ./ui/dev

# Builds the web UI into ui/dist, which the server embeds
ui-build:
    cd ui && npm ci --ignore-scripts && npm run generate && npx vite build

# Checks and tests the web UI; with `e2e`, in a browser against target/debug/athanor
ui-test *ARGS:
    ./ui/test "$@"

# Measures the web UI: graphs in Node and in Chromium, then a server with R-1k and up to 1 000 services, and its pages
bench-ui:
    #!/usr/bin/env bash
    set -euo pipefail
    . ./.ci/tools
    cargo build --release --locked --package athanor-cli
    cd ui
    [ -d node_modules ] || npm ci --ignore-scripts --no-fund --no-audit
    ATHANOR_BIN=$PWD/../target/release/athanor node bench/run.mjs

# Runs the oracle of graphs and transforms on many histories, and a browser with a million label values and many refreshes
ui-soak:
    #!/usr/bin/env bash
    set -euo pipefail
    . ./.ci/tools
    cargo build --locked --package athanor-cli
    ATHANOR_EXPLORE_CASES=5000 cargo test --locked --package athanor-querier --test explore
    PROPTEST_CASES=20000 cargo test --locked --package athanor-profile --lib call_tree
    export ATHANOR_BIN=$PWD/target/debug/athanor
    UI_LABEL_VALUES=1000000 ./ui/test e2e hostile
    cd ui
    UI_LEAK_ROUNDS=1000 node bench/run.mjs leaks

# Sends two hours of profiles of a made-up shop to the server at URL
ui-demo URL='http://127.0.0.1:4040':
    #!/usr/bin/env bash
    set -euo pipefail
    . ./.ci/tools
    [ -d ui/node_modules ] || npm --prefix ui ci --ignore-scripts --no-fund --no-audit
    node ui/scripts/push_demo.mjs {{URL}}

# Writes docs/images/ui from the pages of the server at URL, which needs profiles of the last hour
ui-screenshots URL='http://127.0.0.1:4040':
    #!/usr/bin/env bash
    set -euo pipefail
    . ./.ci/tools
    environment=$(mktemp -d)
    trap 'rm -r "$environment"' EXIT
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet pillow==13.0.0
    [ -d ui/node_modules ] || npm --prefix ui ci --ignore-scripts --no-fund --no-audit
    node ui/scripts/screenshots.mjs {{URL}}
    "$environment/bin/python" ui/scripts/shrink_images.py docs/images/ui/*.png

# Writes the generated pages of docs/reference
docs:
    ATHANOR_WRITE_REFERENCE=1 cargo test --locked --workspace reference

# Prints the measures of style with their limits and goals
tidy:
    cargo test --locked --package athanor-integration --test tidy measures_stay_within -- --nocapture

# Replays one seed of the simulated node; writes its events to integration/story.txt
seed SEED:
    ATHANOR_SEED={{SEED}} ATHANOR_STORY=story.txt cargo test --locked --package athanor-integration --test simulation counted_once

# Replays one seed of the simulated cluster; writes integration/story.txt and integration/log.txt
cluster-seed SEED:
    ATHANOR_FLEET_SEED={{SEED}} ATHANOR_STORY=story.txt ATHANOR_LOG=log.txt cargo test --locked --package athanor-integration --test simulation fleet::a_cluster_lives -- --nocapture

# Plants each bug whose name begins with NAME and runs the test that must fail
mutant NAME:
    ./integration/mutants/run {{NAME}}

# Compares queries on merged blocks with plain lists in many random histories
compaction-model COUNT='10000':
    ATHANOR_HISTORIES={{COUNT}} cargo test --locked --package athanor-integration --test simulation plain_lists_whatever -- --nocapture

# Writes a backlog of BYTES and merges it with the role compactor in a cgroup of 256 MiB
compaction-backlog BYTES='20000000000':
    cargo build --release --locked --package athanor-cli
    cargo run --release --locked --package athanor-integration --example compaction_backlog -- --bytes {{BYTES}}

# Measures the agent: load of scrapes, latency of received profiles, wake-ups, and the spool beside bare writes
agent-bench:
    cargo build --release --locked --package athanor-agent
    cargo run --release --locked --package athanor-integration --example agent_bench
    cargo bench --locked --package athanor-agent --bench spool

# Runs Prometheus's discovery on the agent's cases, rewrites what its tests expect, and runs client-go on the stand-in
agent-oracle:
    #!/usr/bin/env bash
    set -euo pipefail
    . ./.ci/tools
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' EXIT
    program=$folder/discovery
    go build -C integration/clients/go-discovery -o "$program" .
    "$program" generate agent/tests/discovery_oracle
    "$program" expect agent/tests/discovery_oracle
    git diff --stat -- agent/tests/discovery_oracle
    ATHANOR_DISCOVERY_ORACLE=$program cargo test --locked --package athanor-agent --test kubernetes client_go
    cargo test --locked --package athanor-agent --test discovery_oracle

# Kills the agent KILLS times and the server half as often, with other faults between, fills the disk, and compares all totals
agent-ledger KILLS='100':
    cargo build --locked --package athanor-agent --package athanor-cli
    ATHANOR_AGENT_KILLS={{KILLS}} cargo test --locked --package athanor-integration --test agent -- --nocapture ledger full_spool

# Cuts the agent off from its server for SECONDS and compares what arrives afterwards
agent-outage SECONDS='3600':
    cargo build --locked --package athanor-agent --package athanor-cli
    ATHANOR_AGENT_OUTAGE_SECONDS={{SECONDS}} cargo test --locked --package athanor-integration --test agent -- --nocapture outage

# Unwinds COUNT snapshots of real processes as the sampler does, and compares with framehop, and some of them with gdb
sampler-snapshots COUNT='10000' GDB='400':
    ATHANOR_SNAPSHOTS={{COUNT}} ATHANOR_GDB_SNAPSHOTS={{GDB}} cargo test --locked --package athanor-agent-ebpf --test sampler -- --nocapture snapshots_unwind

# Fuzzes the unwinder of the BPF program, compiled for the host, for SECONDS
sampler-fuzz SECONDS='600':
    ATHANOR_UNWINDER_FUZZ_SECONDS={{SECONDS}} cargo test --locked --package athanor-agent-ebpf --test sampler -- --nocapture fuzzed_stack

# Samples processes that fork, execute and load libraries for SECONDS; the sampler's memory must not grow
sampler-soak SECONDS='600':
    ATHANOR_SOAK_SECONDS={{SECONDS}} cargo test --locked --package athanor-agent-ebpf --test sampler -- --nocapture memory_does_not_grow

# Measures the sampler's share of the machine, time per sample and memory, beside busy programs. Needs an idle machine
sampler-bench SECONDS='300' PROCESSES='100':
    cargo build --release --locked --package athanor-agent-ebpf --example sampler_bench
    for hz in 19 97; do ${CARGO_TARGET_DIR:-target}/release/examples/sampler_bench $hz {{SECONDS}} {{PROCESSES}}; done

# Takes a CPU offline and online while the sampler runs. Only root may, and other programs slow down meanwhile
sampler-hotplug:
    cargo test --locked --package athanor-agent-ebpf --test kernel -- --ignored --exact hotplug::cpu_that_was_offline_is_sampled_again

# Fuzzes one target, named by its file in fuzz/targets
fuzz TARGET SECONDS='60':
    ./fuzz/run {{SECONDS}} {{TARGET}}

# Runs everything that CI checks
ci:
    ./.ci/run

# Runs one benchmark of one crate: `just bench profile decode`
bench CRATE NAME:
    cargo bench --locked --package athanor-{{CRATE}} --bench {{NAME}}

# Measures merges of R-10k and of ten flushes, tiers, and a tenth of a day's block
bench-compaction:
    cargo bench --locked --package athanor-block --bench block -- --profiles 10000 --only merge
    cargo bench --locked --package athanor-block --bench block -- --profiles 800 --only merge
    cargo bench --locked --package athanor-block --bench block -- --only day

# Measures listings, registrations and copies of a catalog with BLOCKS blocks
bench-catalog BLOCKS='1000000':
    cargo bench --locked --package athanor-catalog --bench state -- --blocks {{BLOCKS}}
