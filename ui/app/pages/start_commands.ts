// Commands that send first profiles, with the address of this server.
import { shellQuote, tenantOption } from "../components/request_commands";

/** Where profiles go. */
export interface PushTarget {
  /** Root of the server without a slash at its end. */
  readonly url: string;
  readonly tenant: string;
}

export interface StartCommand {
  readonly title: string;
  /** What the command needs or does, in one sentence. */
  readonly note: string;
  readonly text: string;
}

// A tenant in a link is any text; in a command it is one word of a shell or a string of a language.
function stringLiteral(text: string): string {
  return JSON.stringify(text);
}

function lines(...parts: readonly (string | false)[]): string {
  return parts.filter((part) => part !== false).join("\n");
}

function curlCommand({ url, tenant }: PushTarget): string {
  const header = tenantOption(tenant);
  return lines(
    "printf 'main;checkout;pay 70\\nmain;checkout;db.query 20\\nmain;search 10\\n' |",
    `  curl -sS${header} --data-binary @- ${shellQuote(`${url}/ingest?name=shop.cpu`)}`,
  );
}

function perfCommand({ url, tenant }: PushTarget): string {
  const header = tenantOption(tenant);
  return lines(
    "sudo perf record -a -g -e cpu-clock -F 97 -o perf.data -- sleep 10",
    "sudo perf script -i perf.data |",
    `  curl -sS${header} --data-binary @- ${shellQuote(`${url}/ingest?name=host&format=perf_script`)}`,
  );
}

function goCommand({ url, tenant }: PushTarget): string {
  return lines(
    "// go get github.com/grafana/pyroscope-go",
    "pyroscope.Start(pyroscope.Config{",
    '\tApplicationName: "shop",',
    `\tServerAddress:   ${stringLiteral(url)},`,
    tenant !== "" && `\tTenantID:        ${stringLiteral(tenant)},`,
    "})",
  );
}

function javaCommand({ url, tenant }: PushTarget): string {
  return lines(
    "# pyroscope.jar: https://github.com/grafana/pyroscope-java/releases",
    "PYROSCOPE_APPLICATION_NAME=shop \\",
    `PYROSCOPE_SERVER_ADDRESS=${shellQuote(url)} \\`,
    tenant !== "" && `PYROSCOPE_TENANT_ID=${shellQuote(tenant)} \\`,
    "PYROSCOPE_FORMAT=jfr \\",
    "java -javaagent:pyroscope.jar -jar shop.jar",
  );
}

function pythonCommand({ url, tenant }: PushTarget): string {
  return lines(
    "# pip install pyroscope-io",
    "import pyroscope",
    "",
    "pyroscope.configure(",
    '    application_name="shop",',
    `    server_address=${stringLiteral(url)},`,
    tenant !== "" && `    tenant_id=${stringLiteral(tenant)},`,
    ")",
  );
}

function nodeCommand({ url, tenant }: PushTarget): string {
  return lines(
    "// npm install @pyroscope/nodejs",
    "import Pyroscope from '@pyroscope/nodejs';",
    "",
    "Pyroscope.init({",
    "  appName: 'shop',",
    `  serverAddress: ${stringLiteral(url)},`,
    tenant !== "" && `  tenantID: ${stringLiteral(tenant)},`,
    "  wall: { collectCpuTime: true },",
    "});",
    "Pyroscope.start();",
  );
}

function rustCommand({ url, tenant }: PushTarget): string {
  return lines(
    "// cargo add pyroscope --features backend-pprof-rs",
    "use pyroscope::backend::{BackendConfig, PprofConfig, pprof_backend};",
    "use pyroscope::pyroscope::PyroscopeAgentBuilder;",
    "",
    "let backend = pprof_backend(PprofConfig::default(), BackendConfig::default());",
    `let agent = PyroscopeAgentBuilder::new(${stringLiteral(url)}, "shop", 100, "pyroscope-rs", "2.1.5", backend)`,
    tenant !== "" && `    .tenant_id(${stringLiteral(tenant)}.to_string())`,
    "    .build()?;",
    "let running = agent.start()?;",
  );
}

function rubyCommand({ url, tenant }: PushTarget): string {
  return lines(
    "# gem install pyroscope",
    "require 'pyroscope'",
    "",
    "Pyroscope.configure do |config|",
    '  config.application_name = "shop"',
    `  config.server_address = ${stringLiteral(url)}`,
    // Ruby evaluates `#{}` within quotes.
    tenant !== "" && `  config.tenant_id = ${stringLiteral(tenant).replaceAll("#", "\\#")}`,
    "end",
  );
}

function dotnetCommand({ url, tenant }: PushTarget): string {
  return lines(
    "# both .so files: https://github.com/grafana/pyroscope-dotnet/releases",
    "PYROSCOPE_APPLICATION_NAME=shop \\",
    `PYROSCOPE_SERVER_ADDRESS=${shellQuote(url)} \\`,
    tenant !== "" && `PYROSCOPE_TENANT_ID=${shellQuote(tenant)} \\`,
    "PYROSCOPE_PROFILING_ENABLED=1 \\",
    "CORECLR_ENABLE_PROFILING=1 \\",
    "CORECLR_PROFILER='{BD1A650D-AC5D-4896-B64F-D6FA25D6B26A}' \\",
    'CORECLR_PROFILER_PATH="$PWD/Pyroscope.Profiler.Native.so" \\',
    'LD_PRELOAD="$PWD/Pyroscope.Linux.ApiWrapper.x64.so" \\',
    "dotnet shop.dll",
  );
}

/** Returns the commands of all languages and tools. */
export function startCommands(target: PushTarget): readonly StartCommand[] {
  return [
    {
      title: "curl",
      note: "Sends a made-up profile. Folded stacks need no profiler.",
      text: curlCommand(target),
    },
    {
      title: "perf",
      note: "Samples this host for 10 s, with the frames that perf finds.",
      text: perfCommand(target),
    },
    { title: "Go", note: "Sends CPU time, memory and goroutines of the program.", text: goCommand(target) },
    {
      title: "Java",
      note: "Profiles a program on the JVM without a change of it.",
      text: javaCommand(target),
    },
    { title: "Python", note: "Profiles the process and its threads.", text: pythonCommand(target) },
    { title: "Node", note: "Sends wall and CPU time and the heap.", text: nodeCommand(target) },
    { title: "Rust", note: "Samples the CPU time of the process.", text: rustCommand(target) },
    { title: "Ruby", note: "Profiles the process.", text: rubyCommand(target) },
    {
      title: ".NET",
      note: "Profiles a program on Linux without a change of it.",
      text: dotnetCommand(target),
    },
  ];
}
