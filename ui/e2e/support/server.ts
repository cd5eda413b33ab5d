// Processes of the server that tests start and stop.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/** Path of the program under test. */
export const ATHANOR_BIN = resolve(process.env["ATHANOR_BIN"] ?? "../target/debug/athanor");

/** Environment of the program: variables of the tests would be settings of the server. */
export const PROGRAM_ENV: Readonly<Record<string, string | undefined>> = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !name.startsWith("ATHANOR_")),
);

const START_TIMEOUT_MS = 20_000;
const MAX_LOG_CHARS = 100_000;

export interface ServerOptions {
  /** Settings as `KEY=VALUE`. */
  readonly settings?: readonly string[];
}

/** Server with a data folder of its own. */
export class TestServer {
  port = 0;
  private process: ChildProcess | undefined;
  private log = "";

  private constructor(
    private readonly folder: string,
    private readonly settings: readonly string[],
  ) {}

  static async start({ settings = [] }: ServerOptions = {}): Promise<TestServer> {
    const folder = await mkdtemp(join(tmpdir(), "athanor-e2e-"));
    const server = new TestServer(folder, ["limits.reject_older_than=0s", ...settings]);
    await server.run();
    return server;
  }

  /** Address without a slash at its end. */
  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Ends the process at once, as a crash does. The data stays. */
  async kill(): Promise<void> {
    const child = this.process;
    this.process = undefined;
    if (child === undefined || child.exitCode !== null) return;
    const exited = new Promise((done) => child.once("exit", done));
    child.kill("SIGKILL");
    await exited;
  }

  /** Starts the process on the same port and data as before. */
  async run(): Promise<void> {
    const settings = this.settings.flatMap((setting) => ["--set", setting]);
    const address = `127.0.0.1:${this.port}`;
    const child = spawn(ATHANOR_BIN, ["serve", "--data", this.folder, "--listen", address, ...settings], {
      env: PROGRAM_ENV,
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.process = child;
    await new Promise<void>((done, fail) => {
      const timer = setTimeout(
        () => fail(new Error(`the server did not start:\n${this.log}`)),
        START_TIMEOUT_MS,
      );
      child.once("error", fail);
      child.once("exit", (code) => fail(new Error(`the server ended with ${code}:\n${this.log}`)));
      child.stderr?.on("data", (chunk: Buffer) => {
        this.log = (this.log + chunk.toString()).slice(-MAX_LOG_CHARS);
        const match = /athanor listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(this.log);
        if (match === null) return;
        this.port = Number(match[1]);
        clearTimeout(timer);
        done();
      });
    });
    child.removeAllListeners("exit");
    this.log = "";
  }

  /** Ends the process and removes its data. */
  async stop(): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }
}
