import { conformance, type Providers } from './conformance.ts';

/** The program on runtimes with a command line. Its argument is the JSON of `Providers`. */
const passed = await conformance(JSON.parse(process.argv[2]!) as Providers);
process.stdout.write(`${JSON.stringify(passed)}\n`);
