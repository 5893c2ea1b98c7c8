/** An embedded broker in a process of its own: `node broker.ts PORT`. */
import { openBroker } from '@treadle/edge';

const { url } = await openBroker({ prefix: 'treadle', port: Number(process.argv[2]) });
process.stdout.write(`${url}\n`);
