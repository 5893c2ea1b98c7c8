import { useSignal, type ReadonlySignal } from '@preact/signals';
import type { RefObject, TargetedEvent } from 'preact';
import { useRef } from 'preact/hooks';

export interface FollowedEnd<T extends HTMLElement> {
  /** Of the element that scrolls. */
  readonly scroller: RefObject<T | null>;
  /** False if the user has scrolled up. */
  readonly isAtEnd: ReadonlySignal<boolean>;
  /** Shows the end, and follows it again. */
  readonly toEnd: () => void;
  readonly onScroll: (event: TargetedEvent<T>) => void;
}

/** Follows the end of a content that grows, until the user scrolls up. `near`: what still counts as the end, in pixels. */
export function useFollowedEnd<T extends HTMLElement>(near: number): FollowedEnd<T> {
  const scroller = useRef<T>(null);
  const isAtEnd = useSignal(true);
  /** Where the user was at the last scroll event. */
  const top = useRef(0);
  return {
    scroller,
    isAtEnd,
    toEnd() {
      const { current } = scroller;
      if (!current) return;
      isAtEnd.value = true;
      current.scrollTop = current.scrollHeight;
      top.current = current.scrollTop;
    },
    onScroll({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) {
      // The event comes later, when the content may have grown. Only a move upwards is one of the user.
      if (scrollHeight - scrollTop - clientHeight < near) isAtEnd.value = true;
      else if (scrollTop < top.current) isAtEnd.value = false;
      top.current = scrollTop;
    },
  };
}
