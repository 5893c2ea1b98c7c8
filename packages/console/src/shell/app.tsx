import { signal, useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { hasKey, isConnectionLost, keyRefused, setKey } from '../api/client.ts';
import { hasScope, loadServerInfo, serverInfo } from '../api/server-info.ts';
import './dropped-files.ts';
import { hrefTo, navigate, place } from '../router.ts';
import { ROUTES, type Badge, type Route, type RouteModule } from '../routes.ts';
import { Announcements } from './announce.tsx';
import { Icon, type IconName } from './icon.tsx';
import { openShortcutHelp, ShortcutHelp, useShortcuts } from './shortcuts.tsx';
import { SignIn } from './sign-in.tsx';
import { chooseNextTheme, theme } from './theme.ts';

/** The parts of the page that were shown so far. */
const loaded = signal<ReadonlyMap<string, RouteModule>>(new Map());
/** What is counted in the navigation. */
const badges = signal<ReadonlyMap<string, Badge>>(new Map());
/** On a small screen the side is closed until it is needed. */
const isSideOpen = signal(false);

function closeSide(): void {
  isSideOpen.value = false;
}

export function App(): JSX.Element {
  const problem = useSignal<string | undefined>(undefined);
  const { segments, query } = place.value;
  const route = ROUTES.find(({ name }) => name === segments[0]) ?? ROUTES[0]!;

  useEffect(() => {
    if (isConnectionLost.value || serverInfo.value) return;
    // The page asks for a key, or shows that the connection is lost.
    loadServerInfo().catch(() => {});
  }, [isConnectionLost.value]);
  useEffect(() => {
    if (loaded.value.has(route.name)) return;
    route.load().then(
      (module) => (loaded.value = new Map([...loaded.value, [route.name, module]])),
      () => (problem.value = 'A part of the page could not be loaded. Reload the page.'),
    );
  }, [route, problem]);
  useBadges();
  // A link of the side was followed.
  useEffect(closeSide, [place.value]);
  useShortcuts('Page', [
    ...ROUTES.map(({ name, label }, index) => ({
      keys: `Mod+${index + 1}`,
      label: `Go to ${label}`,
      run: () => navigate(hrefTo(name)),
    })),
    { keys: '?', label: 'Show the shortcuts', run: openShortcutHelp },
  ]);

  if (keyRefused.value !== undefined) {
    return (
      <>
        <SignIn />
        <Announcements />
      </>
    );
  }
  const module = loaded.value.get(route.name);
  const props = { segments: route.name === segments[0] ? segments.slice(1) : [], query };
  return (
    <div class="shell" data-side={isSideOpen.value ? 'open' : undefined}>
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to the content
      </a>
      <header class="top">
        <button
          type="button"
          class="icon-button"
          aria-label="Navigation"
          aria-expanded={isSideOpen.value}
          onClick={() => (isSideOpen.value = !isSideOpen.value)}
        >
          <Icon name="menu" />
        </button>
        <span class="top-title">{route.label}</span>
      </header>
      <div class="scrim" onClick={closeSide} />
      <Side route={route}>{module?.Side && <module.Side {...props} />}</Side>
      <main id="main" class="main" tabIndex={-1}>
        {isConnectionLost.value && (
          <p class="banner" role="status">
            <span class="spinner" /> The connection to the server is lost. Trying again…
          </p>
        )}
        {module ? (
          <module.View {...props} />
        ) : (
          <div class="empty">{problem.value && <p class="problem">{problem.value}</p>}</div>
        )}
      </main>
      <Announcements />
      <ShortcutHelp />
    </div>
  );
}

/** Keeps the badges current while the server accepts the key. */
function useBadges(): void {
  const isAdmitted = serverInfo.value !== undefined && keyRefused.value === undefined;
  useEffect(() => {
    if (!isAdmitted) return undefined;
    const stops = new Set<() => void>();
    let isStopped = false;
    async function follow(name: string, load: () => Promise<{ readonly badge: Badge }>): Promise<void> {
      const { badge } = await load();
      if (isStopped) return;
      badges.value = new Map([...badges.peek(), [name, badge]]);
      stops.add(badge.follow());
    }
    for (const { name, badge } of ROUTES) {
      // Without it the navigation works too.
      if (badge && hasScope(badge.scope)) follow(name, badge.load).catch(() => {});
    }
    return () => {
      isStopped = true;
      for (const stop of stops) stop();
    };
  }, [isAdmitted]);
}

/** The address of the page is not an anchor. */
function skipToMain(event: MouseEvent): void {
  event.preventDefault();
  document.querySelector<HTMLElement>('#main')?.focus();
}

function Side({ route, children }: { readonly route: Route; readonly children: unknown }): JSX.Element {
  const key = serverInfo.value?.key;
  return (
    <aside class="side">
      <div class="brand">
        <svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
          <rect width="32" height="32" rx="8" class="brand-plate" />
          <circle cx="16" cy="14" r="7" class="brand-line" />
          <path d="M16 14 20.5 9.5M7 25h18" class="brand-line" />
        </svg>
        <span>Treadle</span>
      </div>
      <nav class="nav" aria-label="Main">
        {ROUTES.map(({ name, label, icon }) => {
          const count = badges.value.get(name)?.count.value ?? 0;
          return (
            <a key={name} href={hrefTo(name)} aria-current={name === route.name ? 'page' : undefined}>
              <Icon name={icon} />
              {label}
              {count > 0 && (
                <span class="badge" title={`${count} waiting for you`}>
                  {count} <span class="sr-only">waiting</span>
                </span>
              )}
            </a>
          );
        })}
      </nav>
      <div class="side-content">{children as JSX.Element}</div>
      <footer class="side-foot">
        {key && (
          <span class="side-key" title={`Tenant ${key.tenant}`}>
            {key.name}
          </span>
        )}
        <span class="spacer" />
        <button
          type="button"
          class="icon-button"
          aria-label={`Theme: ${theme.value}. Change it`}
          title={`Theme: ${theme.value}`}
          onClick={chooseNextTheme}
        >
          <Icon name={THEME_ICONS[theme.value]} />
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label="Keyboard shortcuts"
          title="Keyboard shortcuts (?)"
          onClick={openShortcutHelp}
        >
          <Icon name="keyboard" />
        </button>
        {hasKey() && (
          <button type="button" class="icon-button" aria-label="Sign out" title="Sign out" onClick={signOut}>
            <Icon name="signout" />
          </button>
        )}
      </footer>
    </aside>
  );
}

const THEME_ICONS = { auto: 'screen', light: 'sun', dark: 'moon' } as const satisfies Record<string, IconName>;

/** Nothing of the user stays in the page. */
function signOut(): void {
  setKey(undefined);
  location.reload();
}
