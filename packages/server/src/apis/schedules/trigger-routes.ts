import { parseBody, readJsonBytes } from '../../http/body.ts';
import { sendJson } from '../../http/respond.ts';
import { route, type Parameters, type Route } from '../../http/routes.ts';
import type { Triggers } from '../../schedules/triggers.ts';
import type { WireTriggerRun } from './wire.ts';

const SIGNATURE: Parameters = {
  'webhook-id': {
    description: 'Of the event: the same one starts one run.',
    schema: { type: 'string', maxLength: 200 },
  },
  'webhook-timestamp': { description: 'Seconds since 1970.', schema: { type: 'string' } },
  'webhook-signature': {
    description: '`v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`, as Standard Webhooks say.',
    schema: { type: 'string' },
  },
};

/** Requests of other programs that start runs. Their signature is their key. */
export function triggerRoutes({
  triggers,
  maxBodyBytes,
}: {
  readonly triggers: Triggers;
  readonly maxBodyBytes: number;
}): readonly Route[] {
  return [
    route({
      method: 'POST',
      path: '/v1/triggers/:name{[\\w-]+}',
      scope: 'signed',
      summary: 'Start the workflow or agent of a trigger, with a signed request',
      headers: SIGNATURE,
      async handle(c) {
        const name = c.req.param('name');
        const bytes = await readJsonBytes(c, maxBodyBytes);
        const { headers } = c.env.incoming;
        const { run, agent } = await triggers.receive(name, { headers, bytes, parse: () => parseBody(bytes, '') });
        return sendJson(c, { object: 'trigger.run', trigger: name, agent, run_id: run } satisfies WireTriggerRun, 202);
      },
    }),
  ];
}
