export { ATTRIBUTE, METRIC, OPERATION } from './conventions.ts';
export { openTelemetry, type OpenTelemetryOptions } from './open-telemetry.ts';
