import type { ReadonlySignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import type { IconName } from './shell/icon.tsx';

/** A part of the page, with an entry in the navigation. */
export interface Route {
  /** The first segment of its addresses: `#/runs/…`. */
  readonly name: string;
  readonly label: string;
  readonly icon: IconName;
  /** Loaded when it is shown for the first time. */
  readonly load: () => Promise<RouteModule>;
  /** Counts something on all parts of the page, for keys with the scope. */
  readonly badge?: { readonly scope: string; readonly load: () => Promise<{ readonly badge: Badge }> };
}

/** A number beside the label, such as how many approvals wait. 0 is not shown. */
export interface Badge {
  readonly count: ReadonlySignal<number>;
  /** Keeps the number current until the function that it returns is called. */
  follow(): () => void;
}

export interface RouteModule {
  /** The main area. */
  readonly View: ComponentType<ViewProps>;
  /** Below the navigation, for example a list. */
  readonly Side?: ComponentType<ViewProps>;
}

export interface ViewProps {
  /** The segments after the first one. */
  readonly segments: readonly string[];
  readonly query: URLSearchParams;
}

/** The first one is shown at the start. */
export const ROUTES: readonly Route[] = [
  { name: 'chat', label: 'Chat', icon: 'chat', load: () => import('./chat/view.tsx') },
  {
    name: 'runs',
    label: 'Runs',
    icon: 'runs',
    load: () => import('./runs/view.tsx'),
    badge: { scope: 'runs:read', load: () => import('./runs/waiting.ts') },
  },
  { name: 'agents', label: 'Agents', icon: 'agent', load: () => import('./agents/view.tsx') },
  { name: 'workflows', label: 'Workflows', icon: 'branch', load: () => import('./workflows/view.tsx') },
  { name: 'memory', label: 'Memory', icon: 'brain', load: () => import('./memory/view.tsx') },
  { name: 'devices', label: 'Devices', icon: 'device', load: () => import('./devices/view.tsx') },
];
