import type { Front } from '../serving/front.ts';

/** The scripted model itself. What it uses is not what is measured. */
export const front: Front = {
  open: async ({ provider }) => ({
    baseURL: provider,
    fields: {},
    usage: () => Promise.reject(new Error('there is no server to measure')),
    close: async () => {},
  }),
};
