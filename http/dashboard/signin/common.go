package signin

// common are passwords of 12 characters and more that everybody tries first, in small letters.
var common = set(
	"123456789012", "1234567890123", "12345678901234", "123456789012345", "1234567890123456", "123456789101",
	"1234567891011", "123456789123", "1234567890qwerty", "123123123123", "111222333444", "112233445566", "121212121212",
	"098765432109", "0987654321098", "987654321098", "102030405060", "147258369147", "123qweasdzxc", "1q2w3e4r5t6y",
	"1q2w3e4r5t6y7u", "1q2w3e4r5t6y7u8i", "1qaz2wsx3edc", "1qaz2wsx3edc4rfv", "1qazxsw23edc", "q1w2e3r4t5y6", "q1w2e3r4t5y6u7",
	"qwertyuiop12", "qwertyuiop123", "qwertyuiop1234", "qwerty123456", "qwerty1234567", "qwerty12345678", "qwertyuiopas",
	"qwertyuiopasdf", "qwertyuiopasdfghjkl", "qwertyuiop[]", "qwertyqwerty", "qwerty654321", "qwertyasdfgh", "qwertyasdfzxcv",
	"qweasdzxc123", "asdfghjkl123", "asdfghjkl1234", "asdfghjklqwe", "asdfasdfasdf", "zxcvbnm12345", "zxcvbnm123456",
	"abcdefghijkl", "abcdefghijklm", "abcdefghijklmnop", "abcdefg12345", "abcd12345678", "abcdef123456", "abc123abc123",
	"abcabcabcabc", "aabbccddeeff", "a1b2c3d4e5f6", "a123456789012", "aa1234567890",
	"password1234", "password12345", "password123456", "password1234567", "password12345678", "password123456789",
	"passwordpassword", "password2020", "password2021", "password2022", "password2023", "password2024", "password2025",
	"password2026", "password123!", "password1234!", "p@ssw0rd1234", "p@ssword1234", "p@ssw0rd12345", "passw0rd1234",
	"passw0rd12345", "mypassword123", "mypassword1234", "newpassword1", "newpassword123", "thisismypassword",
	"mysecretpassword", "secretpassword", "changeme1234", "changeme12345", "changemenow1", "letmein12345", "letmein123456",
	"letmeinplease", "welcome12345", "welcome123456", "welcome2024!", "welcome2025!", "welcome2026!", "administrator",
	"administrator1", "administrator123", "adminadminadmin", "admin1234567", "admin12345678", "admin123456789", "adminpassword",
	"rootpassword", "rootrootroot", "testtesttest", "testpassword", "test12345678", "guestguestguest", "useruseruser",
	"iloveyou1234", "iloveyou12345", "iloveyouforever", "iloveyousomuch", "ilovemyfamily", "trustno1trustno1", "sunshine1234",
	"princess1234", "football1234", "baseball1234", "basketball12", "superman1234", "batman123456", "dragon123456",
	"monkey123456", "master123456", "michael12345", "liverpool123", "manchesterunited", "chelsea12345", "arsenal12345",
	"correcthorsebatterystaple", "correct horse battery staple", "rollcallrollcall", "rollcall1234", "rollcall12345",
	"verification", "verification1", "verification123", "unbelievable", "whatever1234", "nothing12345", "computer1234",
	"internet1234", "samsung12345", "google123456", "facebook1234", "linkedin1234", "microsoft123", "minecraft123",
)

func set(texts ...string) map[string]bool {
	m := make(map[string]bool, len(texts))
	for _, t := range texts {
		m[t] = true
	}
	return m
}
