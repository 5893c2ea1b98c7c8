export { startAgent, type AgentLogLine, type AgentOptions, type DeviceAgent } from './agent.ts';
export { DeviceConfigError, loadDeviceConfig, type DeviceConfig, type DeviceFlags } from './config.ts';
export { startDemoDevice, type DemoDevice, type DemoDeviceOptions } from './demo.ts';
export { openLedger, type CallState, type Ledger, type LedgerOptions } from './ledger.ts';
export { processRunner, type ProcessRunnerOptions } from './process-runner.ts';
export { openDevice, type RunDeviceOptions } from './run-device.ts';
export type { Described, Outcome, Runner, RunnerCall, ToolSettings } from './runner.ts';
