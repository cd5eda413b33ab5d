module athanor.test/counting

go 1.21
