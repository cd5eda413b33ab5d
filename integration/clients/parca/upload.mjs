// Sends a profile and a binary with Parca's own client, and says what was answered.
import { ChannelCredentials } from "@grpc/grpc-js";
import { ProfileStoreServiceClient } from "@parca/client/dist/parca/profilestore/v1alpha1/profilestore.client";
import { DebuginfoServiceClient } from "@parca/client/dist/parca/debuginfo/v1alpha1/debuginfo.client";
import { GrpcTransport } from "@protobuf-ts/grpc-transport";
import { readFileSync } from "node:fs";

async function main() {
  const [host, profile, binary] = process.argv.slice(2);
  const transport = new GrpcTransport({ host, channelCredentials: ChannelCredentials.createInsecure() });

  const labels = { __name__: "parca_agent", node: "n1", comm: "parca-busy" };
  await new ProfileStoreServiceClient(transport).writeRaw({
    tenant: "",
    normalized: true,
    series: [
      {
        labels: { labels: Object.entries(labels).map(([name, value]) => ({ name, value })) },
        samples: [{ rawProfile: readFileSync(profile), executableInfo: [{ elfType: 3 }] }],
      },
    ],
  });

  const client = new DebuginfoServiceClient(transport);
  const bytes = readFileSync(binary);
  const file = { buildId: "0123456789abcdef", hash: "h", force: false, type: 0, buildIdType: 1 };
  const { response: should } = await client.shouldInitiateUpload(file);
  if (!should.shouldInitiateUpload) throw new Error(should.reason);
  const { response: begun } = await client.initiateUpload({ ...file, size: BigInt(bytes.length) });
  const { buildId, uploadId, type } = begun.uploadInstructions;
  const call = client.upload();
  await call.requests.send({ data: { oneofKind: "info", info: { buildId, uploadId, type } } });
  for (let from = 0; from < bytes.length; from += 1 << 20) {
    const chunkData = bytes.subarray(from, from + (1 << 20));
    await call.requests.send({ data: { oneofKind: "chunkData", chunkData } });
  }
  await call.requests.complete();
  const { size } = await call.response;
  if (size !== BigInt(bytes.length)) throw new Error(`${size} bytes came`);
  await client.markUploadFinished({ buildId, uploadId, type });
  const { response: again } = await client.shouldInitiateUpload(file);
  if (again.shouldInitiateUpload) throw new Error(again.reason);
  transport.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
