import { signal, type Signal } from '@preact/signals';
import type { WireDeviceList } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { request } from '../api/client.ts';
import { hasScope, serverInfo } from '../api/server-info.ts';

/** The device whose tools the next message has; undefined: the tools of the server. */
export const device: Signal<string | undefined> = signal(undefined);

/** The names of the devices. Undefined: not known yet. */
export const deviceNames: Signal<readonly string[] | undefined> = signal(undefined);

/** Reads the devices when the chat is shown, and again when somebody comes back to it. */
export function useDevices(): void {
  const mayLook = serverInfo.value !== undefined && hasScope('agents:invoke');
  useEffect(() => {
    if (!mayLook) return undefined;
    const look = (): void => {
      request<WireDeviceList>('GET', '/v1/devices').then(
        ({ data }) => (deviceNames.value = data.map(({ name }) => name)),
        // The chat works without them.
        () => {},
      );
    };
    look();
    addEventListener('focus', look);
    return () => removeEventListener('focus', look);
  }, [mayLook]);
}

/** Nothing if there are no devices. */
export function DeviceChoice(): JSX.Element | null {
  const names = deviceNames.value ?? [];
  if (names.length === 0) return null;
  return (
    <label class="model-choice">
      <span class="sr-only">Device</span>
      <select
        value={device.value ?? ''}
        title="Whose tools the model has"
        onChange={({ currentTarget }) => (device.value = currentTarget.value || undefined)}
      >
        <option value="">This server</option>
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
