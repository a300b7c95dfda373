/** Who a caller may be. What each may do is `access.ts`. */
export const ROLES = ['read-only', 'client', 'worker', 'peer', 'admin'] as const
export type Role = (typeof ROLES)[number]
