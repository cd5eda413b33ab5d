module athanor.test/plain

go 1.22
