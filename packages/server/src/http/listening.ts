import { messageOf, TreadleError } from '@treadle/core';

/** An address to open in this machine's browser: one that stands for all addresses is not one of them. */
export function urlOf(host: string, port: number): string {
  const name = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return `http://${name.includes(':') ? `[${name}]` : name}:${port}`;
}

/** Why the server cannot listen, and what to do about it. */
export function whyNot(error: NodeJS.ErrnoException, host: string, port: number): TreadleError {
  const advice: Record<string, string> = {
    EADDRINUSE: `Port ${port} of ${host} is in use: stop what listens there, or choose another port.`,
    EACCES: `This user may not listen on port ${port}: choose one above 1023.`,
    EADDRNOTAVAIL: `${host} is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for all of its addresses.`,
    ENOTFOUND: `The host name ${host} is unknown: use 127.0.0.1, or an address of this machine.`,
  };
  const message = advice[error.code ?? ''] ?? `The server cannot listen on ${host}, port ${port}: ${messageOf(error)}`;
  return new TreadleError('invalid-options', message, { cause: error });
}
