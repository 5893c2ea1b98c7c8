/** Attacks a server: its own process, so that its work does not delay the requests that measure the server. */
import { ATTACKS } from './attacks.ts';

const [id, baseURL] = process.argv.slice(2);
const { hostname: host, port } = new URL(baseURL!);
await ATTACKS.find((attack) => attack.id === id)!.run({ host, port: Number(port) });
process.exit();
