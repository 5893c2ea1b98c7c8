import { tool, type Tool, type ToolContext } from '@treadle/core';
import { usableDevice } from './executor.ts';
import type { DeviceView, EdgeLink } from './link.ts';

/** A tool that lists and describes the devices of the caller's tenant. */
export function nodesTool(link: EdgeLink): Tool {
  return tool({
    name: 'nodes',
    description:
      'Lists the devices that can be used, or describes one of them: whether it is online, what it can do, its tools and its last calls.',
    input: {
      type: 'object',
      properties: { device: { type: 'string', description: 'The device to describe; default: list all' } },
    },
    effect: 'pure',
    polling: true,
    touches: () => [],
    execute({ device }, context) {
      const tenant = tenantOf(context);
      if (typeof device === 'string') return described(usableDevice(link, device, tenant));
      return {
        devices: link
          .devices()
          .filter((one) => one.tenant === tenant)
          .map(listed),
      };
    },
  });
}

function tenantOf({ principal }: Pick<ToolContext, 'principal'>): string {
  return principal?.tenant ?? 'default';
}

function listed({ name, status, tools }: DeviceView): object {
  return { name, status, tools: tools.map((one) => one.name) };
}

function described({ name, status, reason, capabilities, tools, isPlain, latencyMs, load, calls }: DeviceView): object {
  const { platform, capabilities: held, folder, skills, ops } = capabilities ?? {};
  return {
    name,
    status,
    ...(reason !== undefined && { reason }),
    ...(isPlain && { note: 'It speaks only the original protocol: it does not say what it offers.' }),
    ...(platform !== undefined && { platform }),
    ...(held && { capabilities: held }),
    ...(folder !== undefined && { folder }),
    ...(ops && { files_and_programs: true }),
    ...(skills && { skills }),
    tools: tools.map((one) => ({ name: one.name, description: one.description })),
    ...(latencyMs !== undefined && { latency_ms: Math.round(latencyMs * 10) / 10 }),
    ...(load && { load }),
    last_calls: calls.slice(0, 5).map(({ tool: called, result = 'running', at }) => ({
      tool: called,
      result,
      at: new Date(at).toISOString(),
    })),
  };
}
