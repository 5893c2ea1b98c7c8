import type { DeviceView, EdgeLink } from '@treadle/edge';
import { z } from 'zod';
import { ApiError } from '../../api-error.ts';
import { readJson } from '../../http/body.ts';
import { sendJson } from '../../http/respond.ts';
import { route, type Route } from '../../http/routes.ts';
import { jsonObject, validateBody } from '../../parse/validate.ts';
import { rejectKey } from '../../requests/idempotency.ts';
import type { DeviceCalls } from './calls.ts';
import type { WireDevice, WireDeviceList, WireDeviceLoad } from './wire.ts';

/** What the server needs of the devices. */
export type ServerDevices = Pick<EdgeLink, 'devices' | 'device' | 'ping' | 'onChange'>;

interface DevicesRoutesOptions {
  readonly devices: ServerDevices | undefined;
  readonly calls: DeviceCalls;
  readonly maxBodyBytes: number;
}

const callBody = z.strictObject({ tool: z.string().min(1).max(128), arguments: jsonObject.nullish() });

/** Calls `wake` with the name of a device that is online, once for each time that it has come back. Returns how to stop. */
export function wakeForDevices(devices: ServerDevices, wake: (name: string) => void): () => void {
  const awake = new Map<string, string | undefined>();
  const look = (name: string): void => {
    const { status, session, capabilities } = devices.device(name) ?? {};
    if (status !== 'online' || !capabilities) awake.delete(name);
    else if (!awake.has(name) || awake.get(name) !== session) {
      awake.set(name, session);
      wake(name);
    }
  };
  const stop = devices.onChange(look);
  for (const { name } of devices.devices()) look(name);
  return stop;
}

/** The devices of the caller's tenant. Those of others do not exist for it. */
export function devicesRoutes({ devices, calls, maxBodyBytes }: DevicesRoutesOptions): readonly Route[] {
  const find = (name: string, tenant: string): DeviceView => {
    const found = devices?.device(name);
    if (found?.tenant === tenant) return found;
    throw new ApiError(404, 'not_found_error', `There is no device ${JSON.stringify(name)}.`, {
      code: 'device_not_found',
    });
  };
  return [
    route({
      method: 'GET',
      path: '/v1/devices',
      scope: 'agents:invoke',
      summary: 'List the devices',
      handle(c) {
        const { tenant } = c.get('caller');
        const data = (devices?.devices() ?? []).filter((one) => one.tenant === tenant).map(wireDevice);
        return c.json({ object: 'list', data } satisfies WireDeviceList);
      },
    }),
    route({
      method: 'GET',
      path: '/v1/devices/:name',
      scope: 'agents:invoke',
      summary: 'Get a device',
      handle: (c) => c.json(wireDevice(find(c.req.param('name'), c.get('caller').tenant))),
    }),
    route({
      method: 'POST',
      path: '/v1/devices/:name/ping',
      scope: 'agents:invoke',
      summary: 'Measure how long a device takes to answer',
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const { name } = find(c.req.param('name'), c.get('caller').tenant);
        try {
          await devices!.ping(name);
        } catch {
          const message = `The device ${JSON.stringify(name)} does not answer.`;
          throw new ApiError(504, 'server_error', message, { code: 'device_silent' });
        }
        return c.json(wireDevice(find(name, c.get('caller').tenant)));
      },
    }),
    route({
      method: 'POST',
      path: '/v1/devices/:name/calls',
      scope: 'agents:invoke',
      summary: 'Call a tool of a device',
      body: callBody,
      async handle(c) {
        rejectKey(c.env.incoming.headers);
        const caller = c.get('caller');
        const { name: device } = find(c.req.param('name'), caller.tenant);
        const { tool, arguments: given } = validateBody(callBody, await readJson(c, maxBodyBytes));
        return sendJson(c, await calls.start({ device, tool, arguments: given ?? {} }, caller), 202);
      },
    }),
    route({
      method: 'GET',
      path: '/v1/devices/:name/calls/:run',
      scope: 'agents:invoke',
      summary: 'Get the result of a call',
      async handle(c) {
        const { name, run } = c.req.param();
        return sendJson(c, await calls.retrieve(name, run, c.get('caller')));
      },
    }),
  ];
}

function wireDevice(view: DeviceView): WireDevice {
  const { name, status, since, reason, capabilities, tools, isPlain, latencyMs, load, calls } = view;
  const { platform, capabilities: held = [], skills = [], limits = {} } = capabilities ?? {};
  return {
    object: 'device',
    name,
    status,
    since: since === undefined ? null : seconds(since),
    reason: reason ?? null,
    platform: platform ?? null,
    capabilities: held,
    tools: tools.map(({ name: tool, description, parameters, effect = 'once' }) => ({
      name: tool,
      description,
      parameters,
      effect,
    })),
    skills: skills.map(({ name: skill, version = null }) => ({ name: skill, version })),
    is_plain: isPlain,
    latency_ms: latencyMs === undefined ? null : Math.round(latencyMs * 100) / 100,
    load: load ? wireLoad(load) : null,
    limits: { parallel: limits.parallel ?? null, queue: limits.queue ?? null },
    last_calls: calls.map(({ requestId, tool, at, elapsedMs, result }) => ({
      request_id: requestId,
      tool,
      at: seconds(at),
      elapsed_ms: elapsedMs ?? null,
      result: result ?? null,
    })),
  };
}

function wireLoad(load: Readonly<Record<string, unknown>>): WireDeviceLoad {
  const number = (key: string): number | null => (typeof load[key] === 'number' ? load[key] : null);
  return {
    running: number('running'),
    queued: number('queued'),
    uptime_s: number('uptime_s'),
    rss_bytes: number('rss_bytes'),
  };
}

function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}
