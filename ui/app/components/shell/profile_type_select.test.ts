// Tests of the choice of the profile type.
import { expect, test, vi } from "vitest";

const CPU_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const HEAP_TYPE = "memory:inuse_space:bytes:space:bytes";

test("type of another time is searched in the whole time once, whatever the number of refreshes", async () => {
  const starts: string[] = [];
  vi.stubGlobal("location", { pathname: "/ui/", search: `?v=1&y=${CPU_TYPE}`, hostname: "localhost" });
  vi.stubGlobal("document", { baseURI: "http://localhost/ui/", addEventListener: () => {} });
  vi.stubGlobal("history", { state: null, replaceState: () => {} });
  vi.stubGlobal("fetch", async (_address: unknown, { body }: { readonly body: string }) => {
    const { start } = JSON.parse(body) as { readonly start: string };
    starts.push(start);
    const types = start === "1" ? [CPU_TYPE, HEAP_TYPE] : [HEAP_TYPE];
    return new Response(JSON.stringify({ profileTypes: types.map((ID) => ({ ID })) }));
  });
  const { profileTypes, startProfileTypeChoice } = await import("./profile_type_select");
  const { refresh } = await import("../../url/clock");
  const { view } = await import("../../url/store");
  const searches = () => starts.filter((start) => start === "1").length;
  const settled = () => vi.waitFor(() => expect(profileTypes.state.value.kind).toBe("done"));
  startProfileTypeChoice();
  await settled();
  await vi.waitFor(() => expect(searches()).toBe(1));
  // The response of the search is read.
  await new Promise((resolve) => setTimeout(resolve, 20));
  for (let count = 0; count < 3; count++) {
    refresh();
    await settled();
  }
  expect(starts.length).toBeGreaterThanOrEqual(5);
  expect(searches()).toBe(1);
  expect(view.value.profileType).toBe(CPU_TYPE);
});
