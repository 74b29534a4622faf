package limiter

// Tenant resolves the party that somebody belongs to where shares are concerned,
// and its share: the identity in the fair queue's tenant dimension, or else the
// user, the team, the API key. False: there is none of them.
func (l *Limiter) Tenant(i Identities) (Tenant, bool) {
	return l.config().Fair.tenant(Request{Identities: i})
}
