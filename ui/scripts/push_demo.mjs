// Sends two hours of profiles of a made-up shop, for images and for trying out the UI. The address of the server is the
// argument, or ATHANOR_URL, or http://127.0.0.1:4040. All values follow from the time and the names.
import { fileURLToPath } from "node:url";
import { createServer } from "vite";

const SERVER_URL = process.argv[2] ?? process.env["ATHANOR_URL"] ?? "http://127.0.0.1:4040";
const MINUTES = 120;
const MINUTE_MS = 60_000;
/** Time between two profiles: the step of a trend of an hour, so that each point of the fleet has one profile. */
const PROFILE_MS = 75_000;
const PROFILE_MINUTES = PROFILE_MS / MINUTE_MS;
const CPU_PERIOD = 10_000_000n;
const SAMPLES_PER_MINUTE = 6_000;
const HEAP_PERIOD = 524_288n;
const KERNEL = "[kernel.kallsyms]";

/** Services with their pods, cores at noon, and growth from one hour to the next. */
const SERVICES = [
  { name: "checkout", pods: 3, cores: 3.4, growth: 1.62 },
  { name: "frontend", pods: 3, cores: 2.6, growth: 1.03 },
  { name: "search", pods: 2, cores: 2.2, growth: 0.97 },
  { name: "recommendations", pods: 2, cores: 1.7, growth: 1.01 },
  { name: "catalog", pods: 2, cores: 1.1, growth: 0.88 },
  { name: "payments", pods: 2, cores: 0.8, growth: 1.21 },
  { name: "inventory", pods: 1, cores: 0.61, growth: 1.0 },
  { name: "cart", pods: 2, cores: 0.52, growth: 1.04 },
  { name: "gateway", pods: 1, cores: 0.47, growth: 0.99 },
  { name: "shipping", pods: 1, cores: 0.31, growth: 1.07 },
  { name: "sessions", pods: 1, cores: 0.24, growth: 0.94 },
  { name: "email", pods: 1, cores: 0.12, growth: 1.0 },
  { name: "ledger", pods: 1, cores: 0.09, growth: 0.71 },
  { name: "ads", pods: 1, cores: 0.07, growth: 1.13 },
];

/** Chains of calls with their weights. `SVC` stands for the service. */
const ENTRY =
  "net/http.(*conn).serve;net/http.serverHandler.ServeHTTP;shop/web.(*Router).ServeHTTP;shop/web.withTrace;shop/auth.(*Guard).Check";
const HANDLERS = [
  ["shop/SVC.(*Server).PlaceOrder;shop/SVC.(*Server).validate", 30],
  ["shop/SVC.(*Server).PlaceOrder;shop/SVC.(*Pricer).Total", 22],
  ["shop/SVC.(*Server).PlaceOrder;shop/SVC.(*Store).Reserve", 17],
  ["shop/SVC.(*Server).GetItem;shop/SVC.(*Store).Load", 12],
  ["shop/SVC.(*Server).GetItem", 6],
  ["shop/SVC.(*Server).ListItems;shop/SVC.(*Store).Scan", 9],
  ["shop/SVC.(*Server).Health", 1],
];
const LIBRARIES = [
  [
    "encoding/json.Marshal;encoding/json.(*encodeState).marshal;encoding/json.(*encodeState).reflectValue;encoding/json.structEncoder.encode;encoding/json.arrayEncoder.encode;encoding/json.stringEncoder",
    19,
  ],
  [
    "encoding/json.Marshal;encoding/json.(*encodeState).marshal;encoding/json.(*encodeState).reflectValue;encoding/json.structEncoder.encode;encoding/json.condAddrEncoder.encode",
    7,
  ],
  [
    "encoding/json.Unmarshal;encoding/json.(*decodeState).value;encoding/json.(*decodeState).object;encoding/json.(*decodeState).literalStore",
    21,
  ],
  [
    "database/sql.(*DB).QueryContext;database/sql.(*DB).queryDC;github.com/jackc/pgx/v5.(*Conn).Query;github.com/jackc/pgx/v5/pgconn.(*PgConn).flush;net.(*conn).Write",
    15,
  ],
  [
    "google.golang.org/grpc.(*ClientConn).Invoke;google.golang.org/grpc.invoke;google.golang.org/grpc.(*clientStream).SendMsg;google.golang.org/grpc/internal/transport.(*http2Client).Write",
    12,
  ],
  ["compress/gzip.(*Writer).Write;compress/flate.(*compressor).deflate", 10],
  ["regexp.(*Regexp).FindStringSubmatch;regexp.(*Regexp).backtrack", 7],
  ["go.uber.org/zap.(*Logger).Info;go.uber.org/zap/zapcore.(*jsonEncoder).EncodeEntry", 5],
];
const LEAVES = [
  ["", 34],
  ["runtime.mallocgc;runtime.(*mcache).nextFree", 18],
  ["runtime.mapaccess2_faststr", 12],
  ["runtime.memmove", 9],
  ["runtime.growslice;runtime.mallocgc", 8],
  ["runtime.convTstring;runtime.mallocgc", 4],
];
const SYSTEM_CALL =
  "syscall.Syscall;entry_SYSCALL_64_after_hwframe;do_syscall_64;__x64_sys_write;vfs_write;sock_write_iter;tcp_sendmsg;tcp_push;tcp_write_xmit;ip_queue_xmit;dev_queue_xmit";
const BACKGROUND = [
  ["runtime.gcBgMarkWorker;runtime.gcDrain;runtime.scanobject;runtime.greyobject", 60],
  ["runtime.gcBgMarkWorker;runtime.gcDrain;runtime.markroot", 25],
  ["runtime.mcall;runtime.schedule;runtime.findRunnable;runtime.netpoll", 30],
];
const BACKGROUND_SHARE = 0.14;

/** Returns a number from 0 to 1 that follows from a text. */
function fraction(text) {
  let hash = 2_166_136_261;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 16_777_619);
  }
  hash = Math.imul(hash ^ (hash >>> 15), 2_246_822_519);
  return ((hash ^ (hash >>> 13)) >>> 0) / 4_294_967_296;
}

function frameOf(name, service) {
  if (/^(entry_SYSCALL|do_syscall|__x64|vfs_|sock_|tcp_|ip_|dev_)/.test(name))
    return { name, binary: KERNEL };
  const packagePath = /^(.*\/)?[^.]+/.exec(name)?.[0] ?? name;
  const line = 20 + Math.floor(fraction(name) * 900);
  return {
    name,
    file: `${packagePath}/${packagePath.split("/").at(-1)}.go`,
    line,
    binary: `/usr/bin/${service}`,
  };
}

/** Returns all stacks of a service with their part of its cost. */
function stacksOf({ name: service }) {
  const stacks = [];
  const add = (chain, weight) => {
    const names = chain.replaceAll("SVC", service).split(";");
    stacks.push({
      stack: names.map((name) => frameOf(name, service)),
      weight: weight * (0.4 + fraction(service + chain)),
    });
  };
  for (const [handler, handlerWeight] of HANDLERS) {
    for (const [library, libraryWeight] of LIBRARIES) {
      const leaves = /[.]Write$/.test(library) ? [...LEAVES, [SYSTEM_CALL, 40]] : LEAVES;
      for (const [leaf, leafWeight] of leaves) {
        const weight =
          handlerWeight * libraryWeight * leafWeight * (0.15 + fraction(service + handler + library) ** 2);
        add([ENTRY, handler, library, leaf].filter((part) => part !== "").join(";"), weight);
      }
    }
  }
  const sum = stacks.reduce((total, { weight }) => total + weight, 0);
  const backgroundSum = BACKGROUND.reduce((total, [, weight]) => total + weight, 0);
  for (const [chain, weight] of BACKGROUND) add(chain, (sum * BACKGROUND_SHARE * weight) / backgroundSum);
  const whole = stacks.reduce((total, { weight }) => total + weight, 0);
  return stacks.map(({ stack, weight }) => ({ stack, share: weight / whole }));
}

/** Returns the load of a minute as a factor: waves, noise, and growth from the first hour to the second. */
function loadOf({ name, growth }, pod, minute) {
  const wave = 1 + 0.18 * Math.sin(minute / 9 + fraction(name) * 6) + 0.06 * Math.sin(minute / 2.3);
  const ramp = Math.min(1, Math.max(0, (minute - MINUTES / 2) / 20));
  return wave * (1 + (growth - 1) * ramp * 1.2) * (0.94 + 0.12 * fraction(`${name} ${pod} ${minute}`));
}

function profileOf(service, stacks, pod, minute, endMs) {
  const load = loadOf(service, pod, minute);
  const isCpu = (type) => type === "cpu";
  return ["cpu", "inuse_space"].map((type) => {
    const scale = isCpu(type)
      ? (SAMPLES_PER_MINUTE * PROFILE_MINUTES * service.cores * load) / service.pods
      : 900 * Math.sqrt(load);
    const period = isCpu(type) ? CPU_PERIOD : HEAP_PERIOD;
    const samples = stacks.flatMap(({ stack, share }, index) => {
      const noise = 0.7 + 0.6 * fraction(`${type} ${service.name} ${pod} ${minute} ${index}`);
      const count = Math.round(share * scale * noise);
      return count === 0 ? [] : [{ stack, value: BigInt(count) * period }];
    });
    const labels = {
      __name__: isCpu(type) ? "process_cpu" : "memory",
      service_name: service.name,
      pod: `${service.name}-${pod}`,
      region: pod % 2 === 0 ? "eu" : "us",
    };
    const profile = {
      type: isCpu(type) ? ["cpu", "nanoseconds"] : ["inuse_space", "bytes"],
      periodType: isCpu(type) ? ["cpu", "nanoseconds"] : ["space", "bytes"],
      period,
      timeMs: endMs - (MINUTES - minute) * MINUTE_MS,
      durationMs: PROFILE_MS,
      samples,
    };
    return { labels, profile };
  });
}

/** Loads the encoder and the client of the tests, which are TypeScript. */
async function loadSupport() {
  const vite = await createServer({
    root: fileURLToPath(new URL("..", import.meta.url)),
    configFile: false,
    logLevel: "error",
    appType: "custom",
    server: { middlewareMode: true, hmr: false, ws: false },
    optimizeDeps: { noDiscovery: true },
  });
  const { encodePprof } = await vite.ssrLoadModule("/e2e/support/pprof.ts");
  const { pushSeries } = await vite.ssrLoadModule("/e2e/support/api.ts");
  await vite.close();
  return { encodePprof, pushSeries };
}

const { encodePprof, pushSeries } = await loadSupport();
const endMs = Math.floor(Date.now() / PROFILE_MS) * PROFILE_MS;
const plans = SERVICES.map((service) => ({ service, stacks: stacksOf(service) }));
for (let minute = 0; minute < MINUTES; minute += PROFILE_MINUTES) {
  const series = plans.flatMap(({ service, stacks }) =>
    Array.from({ length: service.pods }, (_, pod) => profileOf(service, stacks, pod, minute, endMs)).flat(),
  );
  const encoded = series.map(({ labels, profile }) => ({ labels, profile: encodePprof(profile) }));
  await pushSeries(SERVER_URL.replace(/\/$/, ""), encoded);
}
