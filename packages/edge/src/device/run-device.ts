import { startAgent, type AgentLogLine, type DeviceAgent } from './agent.ts';
import type { DeviceConfig } from './config.ts';
import { openLedger } from './ledger.ts';
import { processRunner } from './process-runner.ts';

export interface RunDeviceOptions {
  readonly config: DeviceConfig;
  readonly log?: (line: AgentLogLine) => void;
  readonly onShutdown?: (reason: string | undefined) => void;
}

/** Starts the agent of a device, with its tools in a process of their own. */
export async function openDevice({ config, log, onShutdown }: RunDeviceOptions): Promise<DeviceAgent> {
  const { id, type, prefix, broker, store, tools, maxParallel, maxQueued } = config;
  const ledger = await openLedger({ folder: store });
  const runner = processRunner(tools);
  try {
    return await startAgent({
      id,
      ...(type !== undefined && { type }),
      prefix,
      broker,
      ledger,
      runner,
      timeoutMs: tools.timeoutMs,
      ...(maxParallel !== undefined && { maxParallel }),
      ...(maxQueued !== undefined && { maxQueued }),
      ...(log && { log }),
      ...(onShutdown && { onShutdown }),
    });
  } catch (error) {
    await runner.close();
    await ledger.close();
    throw error;
  }
}
