package simkit

import (
	"encoding/json"
	"fmt"
)

// Action adapts a function to Cloud.Actions: it decodes the body.
func Action[T any](do func(T) error) func(json.RawMessage) error {
	return func(body json.RawMessage) error {
		var in T
		if err := json.Unmarshal(body, &in); err != nil {
			return fmt.Errorf("reading the action: %w", err)
		}
		return do(in)
	}
}

// SetStatus is the action that sets an instance's status, by its ID.
func SetStatus[ID any](set func(id ID, status string) error, status string) func(json.RawMessage) error {
	return Action(func(in struct{ ID ID }) error { return set(in.ID, status) })
}

// SetToken is the action that replaces the credential: the former one becomes invalid.
func SetToken(set func(token string)) func(json.RawMessage) error {
	return Action(func(in struct{ Token string }) error {
		set(in.Token)
		return nil
	})
}
