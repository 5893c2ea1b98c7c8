export {
  decodeCapabilities,
  encodeCapabilities,
  type Capabilities,
  type DecodedCapabilities,
  type OfferedOps,
  type OfferedTool,
} from './protocol/capabilities.ts';
export {
  decodeCommand,
  encodeCommand,
  type CommandType,
  type DecodedCommand,
  type KnownCommand,
  type ToolPayload,
} from './protocol/command.ts';
export { PROTOCOL_VERSION } from './protocol/message.ts';
export {
  decodeReport,
  encodeProgress,
  encodeReport,
  type BlobReference,
  type DecodedReport,
  type ProgressReport,
  type ReportBlock,
  type ReportErrorType,
  type ResultReport,
} from './protocol/report.ts';
export { decodeStatus, encodeStatus, type DecodedStatus, type DeviceStatus } from './protocol/status.ts';
export { isDeviceId, topicsOf, type DeviceTopic, type ParsedTopic, type Topics } from './protocol/topics.ts';
export { openBroker, type Broker, type BrokerOptions, type BrokerUser } from './mqtt/broker.ts';
export {
  mqttClient,
  type Message,
  type MqttClient,
  type MqttOptions,
  type Publication,
  type Subscription,
} from './mqtt/client.ts';
export type { TlsFiles, TransportOptions } from './mqtt/transport.ts';
export { deviceOps, devicePlaces } from './link/device-ops.ts';
export { deviceTools, type DeviceToolsOptions } from './link/device-tools.ts';
export { deviceExecutor, type DeviceExecutor, type DeviceExecutorOptions } from './link/executor.ts';
export { nodesTool } from './link/nodes.ts';
export {
  EdgeError,
  edgeLink,
  type DeviceCall,
  type DeviceOptions,
  type DeviceView,
  type EdgeLink,
  type EdgeLogLine,
  type EdgeOptions,
  type EdgePrompt,
  type ReceivedReport,
  type Reported,
  type SeenMessage,
  type SendOptions,
  type Sent,
} from './link/link.ts';
