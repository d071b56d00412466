package controller

import "milena/internal/api"

// maxTopicName is how long a topic's name may be: the rest of a file name's 255 bytes is
// for the partition number and the deletion mark.
const maxTopicName = 249

// CheckTopicName checks a name for a topic.
func CheckTopicName(name string) *api.Error {
	switch {
	case name == "":
		return api.Errorf(api.InvalidTopicException, "a topic name must not be empty")
	case name == "." || name == "..":
		return api.Errorf(api.InvalidTopicException, "a topic can't be named %q", name)
	case len(name) > maxTopicName:
		return api.Errorf(api.InvalidTopicException, "the topic name has %d characters, at most %d are allowed: %s",
			len(name), maxTopicName, name[:32]+"...")
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return api.Errorf(api.InvalidTopicException,
				"topic name %q has a character that is no ASCII letter or digit, '.', '_' or '-'", name)
		}
	}
	return nil
}
