// A program that serves its profiles with the middleware of the SDK for Node. It prints its address, and is busy in a
// known function until its input ends.
import http from 'node:http';
import Pyroscope from '@pyroscope/nodejs';

Pyroscope.init({ appName: 'node-target', wall: { collectCpuTime: true } });
const middleware = Pyroscope.expressMiddleware();

// What the middleware uses of Express.
const server = http.createServer((request, response) => {
  const url = new URL(request.url, 'http://localhost');
  request.path = url.pathname;
  request.query = Object.fromEntries(url.searchParams);
  response.status = (code) => Object.assign(response, { statusCode: code });
  response.send = (body) => response.end(body);
  response.sendStatus = (code) => response.status(code).end();
  middleware(request, response, () => response.sendStatus(404));
});
server.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${server.address().port}`));

let sink = 0;
function knownBusyFunction(until) {
  while (Date.now() < until) for (let number = 0; number < 1e6; number++) sink += number * number;
}
setInterval(() => knownBusyFunction(Date.now() + 50), 70);
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
