// Runs the commands that the page offers.
import { execFile } from "node:child_process";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { ATHANOR_BIN, PROGRAM_ENV } from "./server";

const COMMAND_TIMEOUT_MS = 20_000;
const MAX_OUTPUT_BYTES = 64 * 1_024 * 1_024;

/** Runs a command in bash. `athanor` is the program under test. Returns its output. */
export async function runShell(command: string): Promise<string> {
  const env = { ...PROGRAM_ENV, PATH: `${dirname(ATHANOR_BIN)}:${process.env["PATH"] ?? ""}`, NO_COLOR: "1" };
  const options = { env, timeout: COMMAND_TIMEOUT_MS, maxBuffer: MAX_OUTPUT_BYTES };
  const { stdout } = await promisify(execFile)("bash", ["-euo", "pipefail", "-c", command], options);
  return stdout;
}
