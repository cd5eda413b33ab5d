// A program that is busy in one known function and sends its profiles with the SDK for Node.
import Pyroscope from '@pyroscope/nodejs';

Pyroscope.init({
  serverAddress: process.argv[2],
  appName: 'node-busy',
  flushIntervalMs: 3000,
  wall: { collectCpuTime: true, samplingDurationMs: 3000 },
});
Pyroscope.start();

let sink = 0;
function knownBusyFunction(until) {
  while (Date.now() < until) for (let number = 0; number < 1e6; number++) sink += number * number;
}

const begin = Date.now();
function turn() {
  Pyroscope.wrapWithLabels({ work: 'known' }, () => knownBusyFunction(Date.now() + 200));
  if (Date.now() - begin < 9000) setTimeout(turn, 1);
  else Pyroscope.stop().then(() => process.exit(0));
}
turn();
