import type { Front } from '../serving/front.ts';

/** The scripted model without a server. Its own CPU time and memory are not measured. */
export const front: Front = {
  open: async ({ provider }) => ({
    baseURL: provider,
    fields: {},
    usage: () => Promise.reject(new Error('There is no server to measure')),
    close: async () => {},
  }),
};
